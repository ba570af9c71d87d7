"""Triton's own description of its gRPC service, out of `tritonclient`: stubs of other languages are made of it."""

from pathlib import Path

from tests.conformance.doors.doors import output_of
from tests.conformance.servers import TRITONCLIENT

GO_PACKAGE = "example.com/triton"
"""What Go calls the stubs."""
_DUMP = """
import sys
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tritonclient.grpc import model_config_pb2, service_pb2
files = FileDescriptorSet()
for module in (model_config_pb2, service_pb2):
    file = files.file.add()
    module.DESCRIPTOR.CopyToProto(file)
    file.options.go_package = sys.argv[2]
open(sys.argv[1], "wb").write(files.SerializeToString())
"""


def tritonclient_missing() -> str:
    """Returns what is missing for `write_descriptors`; empty if nothing."""
    return "" if TRITONCLIENT.exists() else "the environment of tritonclient"


def write_descriptors(folder: Path) -> Path:
    """Writes a `FileDescriptorSet` with `model_config.proto` and `grpc_service.proto`, and returns its path."""
    file = folder / "triton.pb"
    output_of([str(TRITONCLIENT), "-c", _DUMP, str(file), GO_PACKAGE], {}, folder)
    return file
