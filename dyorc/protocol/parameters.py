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

SHARED_MEMORY_REGION = "shared_memory_region"
SHARED_MEMORY_BYTE_SIZE = "shared_memory_byte_size"
SHARED_MEMORY_OFFSET = "shared_memory_offset"
"""Where in memory that the client shares an input lies, or an output should go."""

REPEATABLE = "repeatable"
"""In a model's properties: whether running a request twice is as good as once."""
