"""Names of the protocol's parameters: of a request, and of its inputs and outputs."""

PRIORITY = "priority"
"""1 is the highest; 0, the default, comes last."""

TIMEOUT = "timeout"
"""In microseconds; 0 stands for none."""

EXPLAIN = "explain"
"""Asks for the request's story; in an answer, the story."""

BINARY_DATA_OUTPUT = "binary_data_output"
"""Whether outputs that say nothing themselves come as raw bytes."""

BINARY_DATA = "binary_data"
"""Whether an output comes as raw bytes."""

BINARY_DATA_SIZE = "binary_data_size"
"""How many raw bytes an input or output has behind the JSON."""

CLASSIFICATION = "classification"
"""How many of an output's highest values to send instead of it."""

SHARED_MEMORY_REGION = "shared_memory_region"
SHARED_MEMORY_BYTE_SIZE = "shared_memory_byte_size"
SHARED_MEMORY_OFFSET = "shared_memory_offset"
"""Where in memory that the client shares an input lies, or an output should go."""

SEQUENCES = ("sequence_id", "sequence_start", "sequence_end")
"""To which sequence of requests this one belongs."""

TRITON_PREFIX = "triton_"
"""Parameters that are Triton's own begin so."""

EMPTY_FINAL = "triton_enable_empty_final_response"
"""Whether an answer without outputs marks the end of a stream over gRPC."""

FINAL = "triton_final_response"
"""In an answer: whether it is its request's last."""

REPEATABLE = "repeatable"
"""In a model's properties: whether running a request twice is as good as once."""

PARAMETERS = "parameters"
"""In a model's properties: what a request may set besides tensors, as a JSON list of names, types and defaults."""
