"""Names that have a meaning in the protocols, so that no input or parameter of a model may have them."""

PRIORITY = "priority"
"""1 is the highest; 0, the default, comes last."""

TIMEOUT = "timeout"
"""In microseconds; 0 means none."""

EXPLAIN = "explain"
"""Asks for the request's story; in an answer, the story."""

BINARY_DATA_OUTPUT = "binary_data_output"
"""Whether outputs that say nothing themselves come as raw bytes."""

HEADERS = "headers"
"""Triton's clients may send it; it has no effect."""

SEQUENCES = ("sequence_id", "sequence_start", "sequence_end")
"""To which sequence of requests this one belongs."""

TRITON_PREFIX = "triton_"
"""Parameters that are Triton's own begin so."""

GENERATE_FIELDS = frozenset({"id", "model_name", "model_version", "parameters"})
"""Fields next to inputs, outputs and parameters in the JSON of the generate routes."""

_OF_REQUESTS = frozenset({PRIORITY, TIMEOUT, EXPLAIN, BINARY_DATA_OUTPUT, HEADERS, *SEQUENCES})


def is_of_requests(name: str) -> bool:
    """Returns whether a request's parameter of this name is the protocol's."""
    return name in _OF_REQUESTS or name.startswith(TRITON_PREFIX)


def find_conflict(name: str) -> str:
    """Returns why an input, output or parameter of a model cannot have a name; empty if it can."""
    if is_of_requests(name):
        return "a parameter of every request has that name"
    if name in GENERATE_FIELDS:
        return "a field of every request or answer of the generate routes has that name"
    return ""
