"""Calls of the gRPC API. Their messages are in ``inference.proto``."""

SERVICE = "inference.GRPCInferenceService"


def path_of(call: str) -> str:
    """Returns the path of a call, such as ``ModelInfer``."""
    return f"/{SERVICE}/{call}"
