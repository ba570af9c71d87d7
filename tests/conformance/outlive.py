"""A client's segment that is registered when the server ends: `.venv-tritonclient/bin/python outlive.py HOST:PORT`.

Prints `held` once it is registered, goes on when its standard input ends, and fails if the segment is gone by then.
"""
# pyright: basic
# pyright: reportMissingImports=false
# Tritonclient is in another environment.

import sys
import uuid
from pathlib import Path

import tritonclient.http as http
import tritonclient.utils.shared_memory as shm

_NUM_BYTES = 64

if __name__ == "__main__":
    key = f"/test-{uuid.uuid4().hex}"
    handle = shm.create_shared_memory_region("held", key, _NUM_BYTES)
    with http.InferenceServerClient(sys.argv[1]) as client:
        client.register_system_shared_memory("held", key, _NUM_BYTES)
    print("held", flush=True)
    sys.stdin.read()
    size_bytes = Path(f"/dev/shm{key}").stat().st_size
    shm.destroy_shared_memory_region(handle)
    if size_bytes != _NUM_BYTES:
        sys.exit(f"the segment has {size_bytes} bytes, expected {_NUM_BYTES}")
