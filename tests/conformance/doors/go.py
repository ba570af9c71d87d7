"""Go: Triton's gRPC stubs, made by `protoc` as Triton's own Go client makes them, and the standard library's HTTP client.

Debian has Go, the plugins and the library for gRPC, which Go finds by `GOPATH`, so nothing is downloaded.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.doors.doors import HERE, Addresses, Door, commands_missing, output_of, rows_of
from tests.conformance.doors.stubs import tritonclient_missing, write_descriptors
from tests.conformance.rows import Row

_NAME = "Go: Triton's gRPC stubs, net/http"
_DEBIAN = Path("/usr/share/gocode")
_GRPC = _DEBIAN / "src" / "google.golang.org" / "grpc"
_FILES = ("model_config.proto", "grpc_service.proto")


def _find_missing() -> str:
    library = "" if _GRPC.exists() else "golang-google-grpc-dev"
    missing = (commands_missing("go", "protoc", "protoc-gen-go", "protoc-gen-go-grpc"), library, tritonclient_missing())
    return ", ".join(filter(None, missing))


def _check(addresses: Addresses, folder: Path) -> Iterator[Row]:
    source = folder / "src"
    (source / "client").mkdir(parents=True)
    descriptors = write_descriptors(folder)
    plugins = (f"--go_out={source}", f"--go-grpc_out={source}")
    output_of(["protoc", f"--descriptor_set_in={descriptors}", *plugins, *_FILES], {}, folder)
    shutil.copy(HERE / "client.go", source / "client" / "main.go")
    environment = {
        "GO111MODULE": "off",
        "GOPATH": f"{folder}{os.pathsep}{_DEBIAN}",
        "GOFLAGS": "-p=2",
        "GOCACHE": str(folder / "cache"),
    }
    program = folder / "client.bin"
    output_of(["go", "build", "-o", str(program), "client"], environment, folder)
    yield from rows_of(_NAME, [str(program), addresses.grpc, addresses.http], {}, folder)


DOOR = Door(_NAME, _find_missing, _check)
