"""What `tritonclient.http` does with a server of `workflow.mirror`.

    python client.py HOST:PORT CHECK     ends with an error if the check fails

It runs in an environment of its own, because the client's versions of libraries are not ours. `outlive` says `held` and goes on
when its standard input ends.
"""

import contextlib
import sys
import uuid
from pathlib import Path

import numpy as np
import tritonclient.http as http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

SMALL, LARGE = 3, 2 * 2**20
"""Numbers of 4 bytes in a tensor."""
TEXTS = np.array([b"plain", b"", "zwölf €".encode(), b"z" * 40_000], dtype=object)
JSON_TEXTS = np.array(["plain", "", "zwölf €"], dtype=object)


def numbers(num):
    """A tensor whose elements differ."""
    return np.arange(num, dtype=np.float32) % 1000


def reversed_(texts):
    """What the server makes of texts."""
    return [(item.encode() if isinstance(item, str) else item)[::-1] for item in texts.tolist()]


def plain_inputs(x, texts, is_binary):
    """Inputs with their data in the request."""
    inputs = [http.InferInput("x", list(x.shape), "FP32"), http.InferInput("texts", list(texts.shape), "BYTES")]
    inputs[0].set_data_from_numpy(x, binary_data=is_binary)
    inputs[1].set_data_from_numpy(texts, binary_data=is_binary)
    return inputs


def as_bytes(items):
    """Texts of an answer, which are str where they came in JSON."""
    return [item.encode() if isinstance(item, str) else item for item in items.tolist()]


def check_plain(client, num, is_binary):
    """`infer` and `async_infer`, with outputs named and not."""
    x, texts = numbers(num), TEXTS if is_binary else JSON_TEXTS[:2]
    inputs = plain_inputs(x, texts, is_binary)
    outputs = [http.InferRequestedOutput(name, binary_data=is_binary) for name in ("raised", "reversed")]
    results = [client.infer("mirror", inputs, outputs=outputs, request_id="7"), client.infer("mirror", inputs, model_version="1")]
    waiting = [client.async_infer("mirror", inputs, outputs=outputs) for _ in range(3)]
    results += [one.get_result() for one in waiting]
    assert results[0].get_response()["id"] == "7"
    for result in results:
        np.testing.assert_array_equal(result.as_numpy("raised"), x + 1)
        assert as_bytes(result.as_numpy("reversed")) == reversed_(texts)


@contextlib.contextmanager
def segment(client, name, num_bytes):
    """A region of the client's own, registered; is there, and registered no more, at the end."""
    key = f"/test-{uuid.uuid4().hex}"
    handle = shm.create_shared_memory_region(name, key, num_bytes)
    try:
        client.register_system_shared_memory(name, key, num_bytes)
        assert client.get_system_shared_memory_status(name) == [{"name": name, "key": key, "offset": 0, "byte_size": num_bytes}]
        yield handle
        client.unregister_system_shared_memory(name)
        assert name not in [one["name"] for one in client.get_system_shared_memory_status()]
        assert Path(f"/dev/shm{key}").stat().st_size == num_bytes, "the client's segment is the client's"
    finally:
        shm.destroy_shared_memory_region(handle)
    assert not Path(f"/dev/shm{key}").exists()


def infer_shared(client, source, target, x, is_async=False):
    """One request whose tensors all are in shared memory; checks what it gave."""
    texts = serialize_byte_tensor(TEXTS)
    num_text_bytes = len(texts.item())
    shm.set_shared_memory_region(source, [x])
    shm.set_shared_memory_region(source, [texts], offset=x.nbytes)
    inputs = [http.InferInput("x", list(x.shape), "FP32"), http.InferInput("texts", list(TEXTS.shape), "BYTES")]
    inputs[0].set_shared_memory("source", x.nbytes)
    inputs[1].set_shared_memory("source", num_text_bytes, offset=x.nbytes)
    outputs = [http.InferRequestedOutput("raised"), http.InferRequestedOutput("reversed")]
    outputs[0].set_shared_memory("target", x.nbytes)
    outputs[1].set_shared_memory("target", num_text_bytes, offset=x.nbytes)
    shm.set_shared_memory_region(target, [np.zeros(x.nbytes + num_text_bytes, np.uint8)])
    if is_async:
        result = client.async_infer("mirror", inputs, outputs=outputs).get_result()
    else:
        result = client.infer("mirror", inputs, outputs=outputs)
    raised = result.get_output("raised")
    assert (raised["datatype"], raised["shape"], "data" in raised) == ("FP32", [len(x)], False)
    np.testing.assert_array_equal(shm.get_contents_as_numpy(target, np.float32, raised["shape"]), x + 1)
    found = shm.get_contents_as_numpy(target, np.object_, result.get_output("reversed")["shape"], offset=x.nbytes)
    assert found.tolist() == reversed_(TEXTS)


def refusal(call):
    """Text and status of the error that a call ends with."""
    try:
        call()
    except InferenceServerException as error:
        return error.message(), error.status()
    return "none", ""


def check_shared(client, num):
    """Regions registered, used, looked at and given up."""
    x = numbers(num)
    num_bytes = x.nbytes + 50_000
    assert "system_shared_memory" in client.get_server_metadata()["extensions"]
    with segment(client, "source", num_bytes) as source, segment(client, "target", num_bytes) as target:
        for is_async in (False, True):
            infer_shared(client, source, target, x, is_async)
        assert refusal(lambda: client.register_system_shared_memory("source", "/none", 1)) == (
            "shared memory region 'source' already in manager",
            "400",
        )
    client.unregister_system_shared_memory()
    client.unregister_cuda_shared_memory()
    assert client.get_system_shared_memory_status() == client.get_cuda_shared_memory_status() == []


def check_outlive(client):
    """A segment that is registered when the server ends."""
    key = f"/test-{uuid.uuid4().hex}"
    handle = shm.create_shared_memory_region("source", key, 64)
    client.register_system_shared_memory("source", key, 64)
    print("held", flush=True)
    sys.stdin.read()
    assert Path(f"/dev/shm{key}").stat().st_size == 64
    shm.destroy_shared_memory_region(handle)


CHECKS = {
    "binary-small": lambda client: check_plain(client, SMALL, True),
    "binary-large": lambda client: check_plain(client, LARGE, True),
    "json-small": lambda client: check_plain(client, SMALL, False),
    "json-large": lambda client: check_plain(client, LARGE, False),
    "shared-small": lambda client: check_shared(client, SMALL),
    "shared-large": lambda client: check_shared(client, LARGE),
    "outlive": check_outlive,
}

if __name__ == "__main__":
    with http.InferenceServerClient(sys.argv[1], concurrency=4) as server:
        CHECKS[sys.argv[2]](server)
