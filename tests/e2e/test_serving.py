"""What a user of `dyorc serve` sees, with replicas on Ray Serve and without Ray. The last tests ask for what only Ray has."""

import asyncio
import json
import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest

import dyorc
from dyorc.client.retries import Retries
from dyorc.errors import AuthenticationError, DeadlineError, PermissionDeniedError
from dyorc.testing import ServerProcess
from tests import oip, oip_grpc
from tests.deadlines import wait_until
from tests.e2e.conftest import Tenants
from tests.server_process import client_of, replica_pids
from tests.shared_folders import shared_object

pytestmark = pytest.mark.ray

X = np.array([1, 2, 3, 4], np.float32)
_SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module", params=["ray_server", "cell"])
def server(request: pytest.FixtureRequest) -> ServerProcess:
    """Returns the server on Ray, then the one without."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def client(server: ServerProcess, tenants: Tenants) -> Iterator[httpx.Client]:
    """Yields a client of HTTP that may use all models."""
    with client_of(server, tenants.key) as found:
        yield found


@pytest.fixture(scope="module")
def own_client(server: ServerProcess, tenants: Tenants) -> Iterator[dyorc.Client]:
    """Yields a client of ours that may use all models."""
    with dyorc.Client(server.url, api_key=tenants.key) as found:
        yield found


@pytest.fixture(scope="module")
def client_of_ray(ray_server: ServerProcess, tenants: Tenants) -> Iterator[httpx.Client]:
    """Yields a client of HTTP that may use all models on Ray."""
    with client_of(ray_server, tenants.key) as found:
        yield found


def infer(client: httpx.Client, model: str, body: oip.Body) -> httpx.Response:
    """Sends one request."""
    return client.post(f"/v2/models/{model}/infer", content=body.content, headers=body.headers)


def test_it_says_when_it_is_ready_and_what_it_serves(server: ServerProcess, client: httpx.Client) -> None:
    line = server.wait_for(r"Ready after .*")[0]
    print(f"\n{line}")
    models = client.get("/v2/models").json()["models"]
    assert f"Models: {', '.join(models)}." in line
    assert {"quadruple", "double", "echo", "count_up"} <= set(models)
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


def test_a_stream_comes_in_parts(own_client: dyorc.Client) -> None:
    parts = list(own_client.stream("count_up", x=np.array([1, 1], np.float32), num_parts=5))
    np.testing.assert_array_equal(parts, [[2, 2], [3, 3], [4, 4], [5, 5], [6, 6]])


def test_a_job_is_kept_and_run(own_client: dyorc.Client) -> None:
    job = own_client.submit("quadruple", x=X)
    np.testing.assert_array_equal(job.result(), 4 * X)
    assert job.id in [one.id for one in own_client.jobs()]


def test_large_tensors_pass_through(own_client: dyorc.Client) -> None:
    np.testing.assert_array_equal(own_client.infer("chain", seed=np.ones(1, np.float32)), [3, 2_000_002])


def test_a_long_program_does_not_hold_up_others_and_misses_its_deadline(own_client: dyorc.Client, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(own_client.infer, "gated", x=X, folder=str(tmp_path), timeout_s=2)
        wait_until(lambda: list(tmp_path.glob("started-*")), "it runs")
        np.testing.assert_array_equal(own_client.infer("quadruple", x=X), 4 * X)
        with pytest.raises(DeadlineError):
            slow.result()
        (tmp_path / "open").touch()
    np.testing.assert_array_equal(own_client.infer("gated", x=X, folder=str(tmp_path)), X + 1)


def test_it_serves_over_grpc(server: ServerProcess, tenants: Tenants) -> None:
    async def ask() -> Any:
        async with oip_grpc.connected(server.grpc_address) as stub:
            request = oip_grpc.request("quadruple", {"x": X})
            return await stub.ModelInfer(request, metadata=(("authorization", f"Bearer {tenants.key}"),))

    np.testing.assert_array_equal(oip_grpc.outputs_of(asyncio.run(ask()))["output"], 4 * X)


def test_tensors_come_from_and_go_to_a_clients_shared_memory(client: httpx.Client) -> None:
    with shared_object(X.tobytes() + bytes(X.nbytes)) as path:
        region = f"/v2/systemsharedmemory/region/{path.name}"
        place = {"shared_memory_region": path.name, "shared_memory_byte_size": X.nbytes}
        x = {"name": "x", "datatype": "FP32", "shape": [4], "parameters": place}
        output = {"name": "output", "parameters": place | {"shared_memory_offset": X.nbytes}}
        registration = json.dumps({"key": path.name, "byte_size": 2 * X.nbytes})
        client.post(f"{region}/register", content=registration).raise_for_status()
        answer = client.post("/v2/models/quadruple/infer", content=json.dumps({"inputs": [x], "outputs": [output]}))
        assert "data" not in answer.raise_for_status().json()["outputs"][0]
        np.testing.assert_array_equal(np.frombuffer(path.read_bytes(), np.float32), [*X, *(4 * X)])
        client.post(f"{region}/unregister").raise_for_status()


def test_tenants_may_do_what_their_keys_say(server: ServerProcess, tenants: Tenants) -> None:
    once = Retries(max_attempts=1)
    with dyorc.Client(server.url, retries=once) as nobody, pytest.raises(AuthenticationError):
        nobody.infer("quadruple", x=X)
    with dyorc.Client(server.url, retries=once, api_key=tenants.key_of_one_model) as one:
        np.testing.assert_array_equal(one.infer("quadruple", x=X), 4 * X)
        with pytest.raises(PermissionDeniedError, match="may not use model 'double_until_large'"):
            one.infer("double_until_large", x=X)


def test_only_its_user_can_enter_the_folder_of_the_link(ray_server: ServerProcess) -> None:
    (folder,) = ray_server.temporary_folder.glob("dyorc-*")
    assert (folder / "link").is_socket()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_module_may_import_ray_before_it_is_started(client_of_ray: httpx.Client) -> None:
    answer = oip.read(infer(client_of_ray, "seen_from_ray", oip.json_body({"x": np.zeros(1, np.float32)})))
    assert list(answer.outputs.values()) == [1]


def test_each_program_has_its_own_number_of_replicas_and_actor_options(
    ray_server: ServerProcess, client_of_ray: httpx.Client
) -> None:
    zero = oip.json_body({"x": np.array(0, np.float32)})
    for model, program, num in (("who", "identify", 2), ("who_alone", "identify_alone", 1)):
        seen: set[int] = set()
        threads: set[int] = set()
        with ThreadPoolExecutor(8) as pool:
            for answer in pool.map(lambda _, model=model: oip.read(infer(client_of_ray, model, zero)), range(32)):
                seen.add(int(answer.outputs["pid"]))
                threads.add(int(answer.outputs["num_threads"]))
        assert seen == set(replica_pids(ray_server, program))
        assert len(seen) == num
        assert threads == {1}, "a quarter of a CPU is one thread"


def test_memory_that_a_program_frees_is_there_for_its_next_batch(client: httpx.Client) -> None:
    """Each batch takes 36 MiB, which are 9,216 pages."""
    answers = [oip.read(infer(client, "touched", oip.json_body({"x": X}))) for _ in range(8)]
    found = [int(answer.outputs["output"][0]) for answer in answers]
    print(f"\npages touched: {found}")
    assert statistics.median(found[4:]) < 1000


def test_a_replica_that_hangs_is_replaced_and_its_request_is_answered(
    ray_server: ServerProcess, client_of_ray: httpx.Client, tmp_path: Path
) -> None:
    """The program may take 1.5 s, hangs for good the first time, and has no other replica, so Serve has to replace it."""
    (old,) = replica_pids(ray_server, "hanging_program")
    response = infer(client_of_ray, "hanging", oip.json_body({"x": X}, parameters={"folder": str(tmp_path)}))
    assert (tmp_path / "hung").exists()
    np.testing.assert_array_equal(oip.read(response).outputs["output"], X + 1)
    print(f"\nanswered after {response.elapsed.total_seconds():.1f} s")
    assert old not in replica_pids(ray_server, "hanging_program")
    ray_server.wait_for(r"replica_left .*no result after 1.5 s")
