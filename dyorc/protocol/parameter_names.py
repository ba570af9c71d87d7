"""Names of the protocol's parameters: of a request, and of its inputs and outputs."""

from dyorc.core.reserved_names import BINARY_DATA_OUTPUT as BINARY_DATA_OUTPUT
from dyorc.core.reserved_names import EXPLAIN as EXPLAIN
from dyorc.core.reserved_names import PRIORITY as PRIORITY
from dyorc.core.reserved_names import SEQUENCES as SEQUENCES
from dyorc.core.reserved_names import TIMEOUT as TIMEOUT

BINARY_DATA = "binary_data"
"""Whether an output comes as raw bytes."""

BINARY_DATA_SIZE = "binary_data_size"
"""How many raw bytes an input or output has behind the JSON."""

CLASSIFICATION = "classification"
"""How many of an output's highest values to send instead of it."""

SHARED_MEMORY_REGION = "shared_memory_region"
SHARED_MEMORY_BYTE_SIZE = "shared_memory_byte_size"
SHARED_MEMORY_OFFSET = "shared_memory_offset"
"""The place of an input, or for an output, in memory that the client shares."""

EMPTY_FINAL = "triton_enable_empty_final_response"
"""Whether an answer without outputs marks the end of a stream over gRPC."""

FINAL = "triton_final_response"
"""In an answer: whether it is the last of its request."""

REPEATABLE = "repeatable"
"""In a model's properties: whether running a request twice is as good as once."""

STRUCTURED_VALUES = "structured_values"
"""In a model's properties: the inputs that are structured values, as a JSON list of names, contents, and whether bytes may be
among these."""

PARAMETERS = "parameters"
"""In a model's properties: what a request may set besides tensors, as a JSON list of names, types and defaults."""
