"""A client's memory on a device, by Triton's client: `.venv-tritonclient/bin/python device_memory.py HTTP GRPC FILE`.

The server's device is one for tests: its memory is the file, and a handle is the file's name, filled up to 64 bytes. Runs the
model `mirror` on tensors in that memory, by HTTP and by gRPC, and fails if anything is not as Triton's server does it.
"""
# pyright: basic
# pyright: reportMissingImports=false
# Tritonclient is in another environment.

import base64
import sys
from pathlib import Path

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import serialize_byte_tensor

_NUM = 40_000
_TEXTS_AT = 4 * _NUM
_OUTPUT_AT = _TEXTS_AT + 64


def _check(module, address: str, path: Path) -> None:
    handle = base64.b64encode(path.name.encode().ljust(64, b"\0")).decode()
    x = np.arange(_NUM, dtype=np.float32)
    texts = serialize_byte_tensor(np.array([b"abc", b""], dtype=object)).item()
    with path.open("r+b") as file:
        file.write(x.tobytes() + texts)
    with module.InferenceServerClient(address) as client:
        client.register_cuda_shared_memory("region", handle, 1, path.stat().st_size)
        status = client.get_cuda_shared_memory_status("region")
        (region,) = status if module is http else status.regions.values()
        values = region if module is http else {key: getattr(region, key) for key in ("name", "device_id", "byte_size")}
        assert values == {"name": "region", "device_id": 1, "byte_size": path.stat().st_size}, values
        inputs = [module.InferInput("x", [_NUM], "FP32"), module.InferInput("texts", [2], "BYTES")]
        inputs[0].set_shared_memory("region", 4 * _NUM)
        inputs[1].set_shared_memory("region", len(texts), _TEXTS_AT)
        outputs = [module.InferRequestedOutput("raised"), module.InferRequestedOutput("reversed")]
        outputs[0].set_shared_memory("region", 4 * _NUM, _OUTPUT_AT)
        result = client.infer("mirror", inputs, outputs=outputs)
        assert result.as_numpy("reversed").tolist() == [b"cba", b""]
        raised = np.frombuffer(path.read_bytes()[_OUTPUT_AT : _OUTPUT_AT + 4 * _NUM], np.float32)
        np.testing.assert_array_equal(raised, x + 1)
        client.unregister_cuda_shared_memory("region")
        left = client.get_cuda_shared_memory_status()
        assert not (left if module is http else left.regions), left


if __name__ == "__main__":
    _check(http, sys.argv[1], Path(sys.argv[3]))
    _check(grpc, sys.argv[2], Path(sys.argv[3]))
