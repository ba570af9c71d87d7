"""JavaScript: Node with `@grpc/grpc-js` and `@grpc/proto-loader`, as Triton's own JavaScript client has them, and `fetch`."""

from collections.abc import Iterator
from pathlib import Path

from tests.conformance.doors.doors import HERE, NODE_MODULES, ROOT, Addresses, Door, commands_missing, rows_of
from tests.conformance.doors.stubs import tritonclient_missing, write_descriptors
from tests.conformance.rows import Row

_NAME = "JavaScript: Triton's gRPC service by grpc-js, fetch"


def _find_missing() -> str:
    packages = "" if (NODE_MODULES / "@grpc" / "grpc-js").exists() else "npm's @grpc/grpc-js"
    return ", ".join(filter(None, (commands_missing("node"), packages, tritonclient_missing())))


def _check(addresses: Addresses, folder: Path) -> Iterator[Row]:
    files = (write_descriptors(folder), ROOT / "dyorc" / "protocol" / "inference.proto")
    command = ["node", str(HERE / "client.cjs"), addresses.grpc, addresses.http, *map(str, files)]
    yield from rows_of(_NAME, command, {"NODE_PATH": str(NODE_MODULES)}, folder)


DOOR = Door(_NAME, _find_missing, _check)
