"""What may answer gRPC: tests of the protocol run over each."""

import importlib.util

import pytest

_IS_MISSING = importlib.util.find_spec("ngh2") is None
GRPC_SERVERS = ["grpcio", pytest.param("nghttp2", marks=pytest.mark.skipif(_IS_MISSING, reason="ngh2 is not installed"))]
"""Values of the setting `gateway.grpc_server`."""
