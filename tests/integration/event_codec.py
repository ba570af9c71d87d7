"""JSON requests and server-sent events, as a codec of the load generator: what a client without our libraries would do."""

import json

import numpy as np

from loadgen.pool import Tensors

PART_END = b"\n\n"


def pack(tensors: Tensors) -> bytes:
    """Returns a request."""
    inputs = [{"name": name, "datatype": "FP32", "shape": x.shape, "data": x.ravel().tolist()} for name, x in tensors.items()]
    return json.dumps({"inputs": inputs}).encode()


def unpack(body: bytes) -> Tensors:
    """Returns the stacked parts of a whole stream."""
    parts = [json.loads(event.removeprefix(b"data: "))["outputs"][0] for event in body.split(PART_END) if event]
    return {"output": np.array([part["data"] for part in parts], np.float32)}
