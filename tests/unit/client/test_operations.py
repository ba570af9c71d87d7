"""Operations on models and jobs, without a server."""

import json
import math
from typing import Any

import numpy as np
import pytest

from dyorc.client.effects import BrokenExchange, Reply
from dyorc.client.http import ServerEndpoint
from dyorc.client.job_operations import JobOperations, JobOptions
from dyorc.client.operations import Operations
from dyorc.client.retries import Retries
from dyorc.errors import (
    DeadlineError,
    InvalidInputError,
    ProgramError,
    RequestCancelledError,
    TransportError,
    UnknownModelError,
)
from dyorc.protocol.api_paths import model_path, run_path
from dyorc.protocol.inference_request import Options
from dyorc.protocol.job_records import JobState
from dyorc.protocol.media_types import FRAME_LENGTHS
from tests.scripted_server import metadata
from tests.unit.client.driver import Driver, broken, refused, reply

MODEL = metadata({"x": ("FP32", [-1])}, {"y": ("FP32", [-1])})
ANSWER = {"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [2.0]}]}
PLAIN = Options()


def _operations(driver: Driver, timeout_s: float = 60.0) -> Operations:
    return Operations(driver.delivery, timeout_s, Retries(), 10_000)


def _infer(driver: Driver, operations: Operations, options: Options = PLAIN, **given: Any) -> Any:
    return driver.run(operations.infer("m", given or {"x": [1.0]}, options, None)).value


def _paths(driver: Driver) -> list[str]:
    return [send.request.path for send in driver.sent]


def test_metadata_is_requested_once() -> None:
    driver = Driver([(0, reply(MODEL)), (0, reply(ANSWER)), (0, reply(ANSWER)), (0, reply(MODEL)), (0, reply(MODEL))])
    operations = _operations(driver)
    assert [_infer(driver, operations).tolist() for _ in range(2)] == [[2.0], [2.0]]
    assert _paths(driver) == ["/v2/models/m", "/v2/models/m/infer", "/v2/models/m/infer"]
    driver.run(operations.metadata("m", None))
    assert _paths(driver)[3:] == ["/v2/models/m"], "an explicit request gets the current state"


def test_metadata_that_may_be_stale_is_requested_again() -> None:
    driver = Driver(
        [(0, reply(MODEL)), (0, refused(400, "invalid_input", retryable=False)), (0, reply(MODEL)), (0, reply(ANSWER))]
    )
    operations = _operations(driver)
    with pytest.raises(InvalidInputError):
        _infer(driver, operations)
    _infer(driver, operations)
    assert _paths(driver)[2:] == ["/v2/models/m", "/v2/models/m/infer"]


def test_metadata_and_inference_share_one_deadline() -> None:
    driver = Driver([(3, reply(MODEL)), (0, reply(ANSWER))])
    _infer(driver, _operations(driver), Options(timeout_s=10))
    assert [send.deadline_s for send in driver.sent] == [1010, 1010]
    assert float(dict(driver.sent[1].request.headers)["request-timeout"]) == 7.0
    assert "request-timeout" not in dict(driver.sent[0].request.headers)


@pytest.mark.parametrize("properties", [{"repeatable": "true"}, {"repeatable": "false"}, {}])
def test_an_inference_that_may_have_run_is_sent_again_only_if_its_model_is_repeatable(properties: dict[str, str]) -> None:
    driver = Driver([(0, reply({**MODEL, "properties": properties})), (0, broken(was_sent=True)), (0, reply(ANSWER))])
    if properties.get("repeatable") == "true":
        assert _infer(driver, _operations(driver)).tolist() == [2.0]
        return
    with pytest.raises(TransportError):
        _infer(driver, _operations(driver))
    assert len(driver.sent) == 2


@pytest.mark.parametrize("length", ["x", "-1", "1" * 30, "\u0663", ""])
def test_a_length_that_is_not_a_number_is_refused(length: str) -> None:
    driver = Driver([(0, reply(MODEL)), (0, reply(ANSWER, inference_header_content_length=length))])
    with pytest.raises(TransportError, match="Inference-Header-Content-Length is"):
        _infer(driver, _operations(driver))


def test_readiness_is_polled_with_growing_pauses_and_its_end_says_why() -> None:
    not_ready = (0, refused(503, "not_ready", retryable=True))
    driver = Driver([not_ready, (0, broken(was_sent=False)), not_ready, (0, reply({}))])
    driver.run(_operations(driver).wait_until_ready("/v2/health/ready", 10))
    assert driver.slept_s == pytest.approx([0.05, 0.1, 0.2])
    driver = Driver([not_ready] * 20)
    with pytest.raises(DeadlineError, match="not ready in time: it is not_ready"):
        driver.run(_operations(driver).wait_until_ready("/v2/health/ready", 2))
    assert 1 < sum(driver.slept_s) < 2


def test_health_is_yes_or_no_unless_the_question_is_wrong() -> None:
    outcomes = [reply({}), refused(503, "not_ready", retryable=True), broken(was_sent=False), Reply(400, {})]
    driver = Driver([(0, outcome) for outcome in outcomes])
    assert [driver.run(_operations(driver).is_healthy("/x")) for _ in outcomes] == [True, False, False, False]
    driver = Driver([(0, refused(404, "unknown_model", retryable=False))])
    with pytest.raises(UnknownModelError):
        driver.run(_operations(driver).is_healthy("/x"))


def _job(state: str, **fields: Any) -> dict[str, Any]:
    return {"id": "j/1", "model_name": "m", "model_version": "1", "state": state, "created_s": 1.5, "started_s": None,
            "finished_s": None, "expires_s": None, "num_attempts": 0, "error": None, **fields}  # fmt: skip


def _jobs(driver: Driver, timeout_s: float = 60.0) -> JobOperations:
    return JobOperations(_operations(driver, timeout_s))


def test_a_job_keeps_its_key_however_often_it_is_sent() -> None:
    driver = Driver([(0, reply(MODEL)), (0, broken(was_sent=True)), (0, reply(_job("queued"), 202))] * 2)
    job = JobOptions(webhook="http://me/done", ttl_s=60, run_timeout_s=1.5)
    operations = _jobs(driver)
    record = driver.run(operations.submit("m", {"x": [1.0]}, Options(version="1", priority=3), job))
    assert (record.id, record.state, record.created_s) == ("j/1", JobState.QUEUED, 1.5)
    first, second = driver.sent[1:]
    assert first.request == second.request
    headers = dict(first.request.headers)
    head = json.loads(b"".join(first.request.chunks())[: int(headers["inference-header-content-length"])])
    assert {name: head[name] for name in ("model_name", "model_version", "webhook", "ttl_s")} == {
        "model_name": "m", "model_version": "1", "webhook": "http://me/done", "ttl_s": 60,
    }  # fmt: skip
    assert head["parameters"] == {"timeout": 1_500_000, "priority": 3, "binary_data_output": True}
    driver.outcomes.pop(0)
    driver.run(operations.submit("m", {"x": [1.0]}, Options(version="1"), JobOptions()))
    keys = [dict(send.request.headers)["idempotency-key"] for send in driver.sent[1:]]
    assert keys[0] == keys[1] != keys[2] == keys[3]
    assert len(keys[0]) >= 16


@pytest.mark.parametrize("key", ["", " ", "a\r\nb", "ä", 17])
def test_a_key_that_no_header_can_carry_is_refused(key: Any) -> None:
    with pytest.raises(InvalidInputError, match="idempotency_key is"):
        Driver().run(_jobs(Driver()).submit("m", {}, Options(), JobOptions(idempotency_key=key)))


def test_waiting_asks_the_server_to_wait() -> None:
    running = reply(_job("running"))
    driver = Driver([(30, running), (30, running), (5, reply(_job("succeeded")))])
    assert driver.run(_jobs(driver).wait("j/1", None)).state is JobState.SUCCEEDED
    assert _paths(driver) == ["/v1/jobs/j%2F1?wait_s=30.000"] * 3
    assert [send.deadline_s - 1000 for send in driver.sent] == [90, 120, 150], "the wait, and the time of any operation"
    assert driver.slept_s == []


def test_waiting_ends_at_its_time_and_the_job_goes_on() -> None:
    running = reply(_job("running"))
    driver = Driver([(30, running), (10, running)])
    with pytest.raises(DeadlineError, match="job 'j/1' is running after 40 s; it goes on"):
        driver.run(_jobs(driver).wait("j/1", 40))
    assert _paths(driver) == ["/v1/jobs/j%2F1?wait_s=30.000", "/v1/jobs/j%2F1?wait_s=10.000"]
    assert max(send.deadline_s for send in driver.sent) == 1041


def test_a_server_that_does_not_wait_is_not_polled_without_pause() -> None:
    driver = Driver([(0, reply(_job("running")))] * 8 + [(0, reply(_job("succeeded")))])
    driver.run(_jobs(driver).wait("j/1", None))
    assert driver.slept_s == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1, 1, 1])


def test_a_result_is_the_jobs_answer_or_its_error() -> None:
    driver = Driver([(0, reply(_job("succeeded"))), (0, reply(ANSWER))])
    assert driver.run(_jobs(driver).result("j/1", None)).value.tolist() == [2.0]
    assert _paths(driver)[1] == "/v1/jobs/j%2F1/result"
    body = {"error": "program 'p' failed: ValueError: no", "code": "program", "retryable": False}
    with pytest.raises(ProgramError, match="no"):
        Driver([(0, reply(_job("failed", error=body)))]).run(_jobs(driver).result("j/1", None))
    driver = Driver([(0, reply(_job("cancelled")))])
    with pytest.raises(RequestCancelledError, match="job 'j/1' was cancelled"):
        driver.run(_jobs(driver).result("j/1", None))


def test_a_list_of_jobs_is_read_page_by_page() -> None:
    pages = [{"jobs": [_job("queued")] * 2, "next": "a&b"}, {"jobs": [_job("queued")] * 2, "next": "c"}]
    driver = Driver([(0, reply(page)) for page in pages])
    assert len(driver.run(_jobs(driver).jobs(JobState.QUEUED, 3))) == 3
    assert _paths(driver) == ["/v1/jobs?state=queued&limit=3", "/v1/jobs?state=queued&limit=1&after=a%26b"]
    driver = Driver([(0, reply({"jobs": [], "next": None}))])
    assert driver.run(_jobs(driver).jobs(None, 1000)) == []
    assert _paths(driver) == ["/v1/jobs?limit=100"]


@pytest.mark.parametrize("answer", [{}, {"id": "x"}, _job("asleep"), []])
def test_a_malformed_job_is_a_transport_error(answer: Any) -> None:
    driver = Driver([(0, reply(answer))])
    with pytest.raises(TransportError, match="JSON is malformed"):
        driver.run(_jobs(driver).get("x"))


def test_without_a_limit_nothing_times_out() -> None:
    driver = Driver([(1e9, reply(MODEL)), (0, reply(ANSWER))])
    _infer(driver, _operations(driver, math.inf))
    assert driver.sent[1].deadline_s == math.inf
    assert "request-timeout" not in dict(driver.sent[1].request.headers)


def test_a_stream_that_has_begun_is_not_started_again() -> None:
    head = {"content-type": "application/vnd.dyorc.stream; v=1"}
    driver = Driver([(0, reply(MODEL)), (0, Reply(200, head)), (0, BrokenExchange(TransportError("cut"), was_sent=True))])
    with pytest.raises(TransportError, match="cut"):
        driver.run(_operations(driver).stream("m", {"x": np.zeros(1)}, Options(), Retries(repeats=True)))
    assert dict(driver.sent[1].request.headers)["accept"] == "application/vnd.dyorc.stream"
    assert driver.sent[1].is_streamed


@pytest.mark.parametrize("pause_s", [0.1, 40.0])
def test_the_error_of_a_stream_that_broke_says_that_its_reader_paused(pause_s: float) -> None:
    head = Reply(200, {"content-type": "application/vnd.dyorc.stream; v=1"})
    content = json.dumps(ANSWER).encode()
    part = FRAME_LENGTHS.pack(len(content), 0) + content
    cut = BrokenExchange(TransportError("peer closed connection"), was_sent=True)
    driver = Driver([(0, reply(MODEL)), (0, head), (0, part), (0, cut)], pause_s=pause_s)
    with pytest.raises(TransportError, match="peer closed connection") as caught:
        driver.run(_operations(driver).stream("m", {"x": np.zeros(1)}, Options(), None))
    told = "this client had read nothing for 40 s, and the server ends the stream of a client that does not read"
    assert (told in str(caught.value)) is (pause_s == 40)
    assert len(driver.parts) == 1


@pytest.mark.parametrize("path", [model_path, run_path])
@pytest.mark.parametrize(("name", "version"), [(len, None), ("sums", 2)])
def test_models_and_versions_are_named_by_texts(path: Any, name: Any, version: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"expected its name, a text"):
        path(name, version)


def test_a_key_that_is_no_text_is_named() -> None:
    with pytest.raises(ValueError, match="api_key is a int, expected a text"):
        ServerEndpoint.to("http://localhost", 7, 1)  # type: ignore[arg-type]
