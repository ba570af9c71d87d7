"""What a user of `dyorc serve` sees over HTTP, with replicas on Ray Serve."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import ml_dtypes
import numpy as np
import pytest

from dyorc.testing import ServerProcess
from tests import oip
from tests.server_process import replica_pids

pytestmark = pytest.mark.ray

X = np.array([1, 2, 3, 4], np.float32)


def infer(client: httpx.Client, model: str, body: oip.Body) -> httpx.Response:
    """Sends one request."""
    return client.post(f"/v2/models/{model}/infer", content=body.content, headers=body.headers)


def test_it_says_when_it_is_ready_and_what_it_serves(server: ServerProcess, client: httpx.Client) -> None:
    line = server.wait_for(r"Ready after .*")[0]
    print(f"\n{line}")
    models = client.get("/v2/models").json()["models"]
    assert f"Models: {', '.join(models)}." in line
    assert {"quadruple", "double", "echo", "who", "identify", "identify_alone"} <= set(models)
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    assert client.get("/v2/models/quadruple/ready").json() == {"name": "quadruple", "ready": True}
    assert client.get("/v2/models/quadruple").json()["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [4]}]


@pytest.mark.parametrize("make", [oip.json_body, oip.binary_body])
def test_workflows_and_programs_answer(client: httpx.Client, make: type[oip.Body]) -> None:
    for model, factor in (("quadruple", 4), ("double", 2), ("double_until_large", 32)):
        answer = oip.read(infer(client, model, make({"x": X}, id="7")))  # pyright: ignore[reportCallIssue]
        np.testing.assert_array_equal(answer.outputs["output"], X * factor)
        assert answer.head["id"] == "7"


def test_only_its_user_can_enter_the_folder_of_the_link(server: ServerProcess) -> None:
    (folder,) = server.temporary_folder.glob("dyorc-*")
    assert (folder / "link").is_socket()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_every_type_survives_as_binary_data(client: httpx.Client) -> None:
    texts = np.array([b"ab", b"\x00\xff"], dtype=object)
    inputs = {
        "flags": np.array([True, False]),
        "halves": np.array([1.5, -2.25], np.float16),
        "brains": np.array([1, -3], ml_dtypes.bfloat16),
        "texts": texts,
        "image": np.arange(6, dtype=np.uint8).reshape(2, 3),
    }
    answer = oip.read(infer(client, "echo", oip.binary_body(inputs, parameters={"binary_data_output": True})))
    assert answer.outputs["negated"].tolist() == [False, True]
    assert answer.outputs["halved"].tolist() == [0.75, -1.125]
    assert answer.outputs["doubled"].tolist() == [2, -6]
    assert answer.outputs["reversed"].tolist() == [b"ba", b"\xff\x00"]
    np.testing.assert_array_equal(answer.outputs["transposed"], inputs["image"].T)


def test_a_body_of_100_mb_is_refused_with_both_sizes(client: httpx.Client) -> None:
    response = client.post("/v2/models/quadruple/infer", content=b" " * 100_000_000)
    assert response.status_code == 413
    assert oip.error_text(response) == f"the request's body has 100000000 bytes, the limit is {64 * 2**20}"
    np.testing.assert_array_equal(oip.read(infer(client, "quadruple", oip.json_body({"x": X}))).outputs["output"], X * 4)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (oip.json_body({"x": X[:3]}), 400, "'x' has size 3 in dimension 0, expected 4"),
        (oip.json_body({"x": X.astype(np.float64)}), 400, "'x' is FP64, expected FP32"),
        (oip.json_body({"y": X}), 400, "no input 'y'"),
        (oip.Body(b"{", {}), 400, "malformed"),
    ],
)
def test_errors_of_wrong_requests_say_what_is_wrong(client: httpx.Client, body: oip.Body, status: int, says: str) -> None:
    response = infer(client, "quadruple", body)
    assert response.status_code == status
    assert says in oip.error_text(response)


def test_one_poisoned_input_fails_alone(client: httpx.Client) -> None:
    inputs = [np.full(4, -1 if number == 9 else number, np.float32) for number in range(32)]
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda x: infer(client, "pick", oip.json_body({"x": x})), inputs))
    for number, (x, answer) in enumerate(zip(inputs, answers, strict=True)):
        if number == 9:
            assert answer.status_code == 500
            assert oip.error_text(answer) == "program 'picky' failed: ValueError: negative number -1.0 in a batch"
        else:
            np.testing.assert_array_equal(oip.read(answer).outputs["output"], x + 1)


def test_each_program_has_its_own_number_of_replicas_and_actor_options(server: ServerProcess, client: httpx.Client) -> None:
    zero = oip.json_body({"x": np.array(0, np.float32)})
    for model, program, num in (("who", "identify", 2), ("who_alone", "identify_alone", 1)):
        seen: set[int] = set()
        threads: set[int] = set()
        with ThreadPoolExecutor(8) as pool:
            for answer in pool.map(lambda _, model=model: oip.read(infer(client, model, zero)), range(32)):
                seen.add(int(answer.outputs["pid"]))
                threads.add(int(answer.outputs["num_threads"]))
        assert seen == set(replica_pids(server, program))
        assert len(seen) == num
        assert threads == {1}, "a quarter of a CPU is one thread"


def test_a_replica_that_hangs_is_replaced_and_its_request_is_answered(
    server: ServerProcess, client: httpx.Client, tmp_path: Path
) -> None:
    """The program may take 1.5 s, hangs for good the first time, and has no other replica, so Serve has to replace it."""
    (old,) = replica_pids(server, "hanging_program")
    response = infer(client, "hanging", oip.json_body({"x": X}, parameters={"folder": str(tmp_path)}))
    assert (tmp_path / "hung").exists()
    np.testing.assert_array_equal(oip.read(response).outputs["output"], X + 1)
    print(f"\nanswered after {response.elapsed.total_seconds():.1f} s")
    assert old not in replica_pids(server, "hanging_program")
    assert re.search(r"replica_left .*no result after 1.5 s", server.output)
