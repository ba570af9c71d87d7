"""What a store gives back, and files in shared memory: their writer may have another version, or not be ours."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.authoring.bundles import Bundle
from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.deployment.state import DeploymentState, ModelHistory, Version, next_version
from dyorc.errors import ConfigurationError, DyOrcError, StoreError, TransportError
from dyorc.gateway.jobs.job_json import job_bytes, tenant_of, trace_of
from dyorc.leader_election.leader import Leader, leader_of, lease_of
from dyorc.protocol.canary_rules import CanaryRules, FailureRules
from dyorc.replay.identities import Identities
from dyorc.replay.recorded_results import RecordedResults
from dyorc.replay.replay_report import replay_all
from dyorc.replay.replayer import Replayer
from dyorc.store.base import job_of
from dyorc.store.lease_store import Lease
from dyorc.telemetry.histories.history import (
    CONSTANT,
    FORMAT,
    INPUT,
    HistoryCall,
    HistoryDecision,
    KeptTensor,
    NestedRun,
    ReadStream,
    RequestHistory,
    TensorSource,
)
from dyorc.telemetry.histories.history_files import read_histories
from dyorc.transport.arena_file import PAGE_BYTES, ArenaLayout, usage_of
from dyorc.transport.arena_views import ArenaView
from tests.fuzz.contract import FuzzTarget, InputForm, check

# Deployments


def _read_deployments(data: bytes) -> None:
    state = DeploymentState.of_json(data)
    check(DeploymentState.of_json(state.to_json()).to_json() == state.to_json(), "the record came back otherwise")
    state.names(), state.groups()
    for history in state.lines.values():
        versions = [history.versions[name] for name in history.loaded_names()]
        state.retired_of(versions)
        next_version(history)
        for version in versions:
            assert history.now is not None
            history.now.traffic_of(version.version)
        for change in (history.without_versions, history.roll_back):
            with suppress(DyOrcError):
                change()


def _version(name: str) -> Version:
    return Version(
        model="m", version=name, bundle=Bundle("app.py:m", "app"), names={"p": f"p@{name}"}, codes={"p": "0"}, deployed_s=1.0
    )


def build_deployments() -> FuzzTarget:
    """Returns the target for records of deployments."""
    history = ModelHistory.starting_with(_version("1"), origin="app.py:m")
    rules = CanaryRules(errors=FailureRules(max_ratio=0.1))
    judged = history.with_version(_version("2"), 0.1, shadow=0.1, sticky="x-user", rules=rules)
    states = [
        DeploymentState(1, {"m": history}),
        DeploymentState(2, {"m": judged}),
        DeploymentState(3, {"m": judged.without_versions()}),
    ]
    settled = judged.settle_canary(goes_on=False, reason="slow", now_s=1.0)
    states.append(DeploymentState(4, {"m": settled, "other": history}))
    return FuzzTarget(
        name="deployment_records",
        read=_read_deployments,
        errors=DECODE_ERRORS,
        seeds=tuple(state.to_json() for state in states),
        form=InputForm.JSON,
    )


# Jobs, leaders


def _read_job(data: bytes) -> None:
    fields = msgspec.json.decode(data, type=dict[str, str | float | None])
    job = job_of(fields)
    job_bytes(job), tenant_of(job), trace_of(job)


def build_jobs() -> FuzzTarget:
    """Returns the target for records of jobs: an input has the values of a store's row as JSON."""
    job: dict[str, Any] = {
        "id": "j", "tenant": "t", "model_name": "m", "model_version": "1", "state": "failed", "created_s": 1.5, "ttl_s": "60",
        "num_attempts": 1, "terms": '{"weight": 2.0, "max_requests": 3}', "webhook": "", "started_s": None, "finished_s": 2,
        "expires_s": "3", "error": '{"text": "bad", "code": "internal", "retryable": false, "status": 500}',
    }  # fmt: skip
    return FuzzTarget(
        name="job_records",
        read=_read_job,
        errors=(StoreError, *DECODE_ERRORS),
        seeds=(msgspec.json.encode(job),),
        form=InputForm.JSON,
        words=(b"succeeded", b"queued", b"{}", b'{"trace": {}}', b"null", b"[" * 2000, b"nan", b"1e400"),
    )


def build_leaders() -> FuzzTarget:
    """Returns the target for records of leaders."""
    leader = Leader(group="g", fence=1, address="tcp://a:1", replicas_address="tcp://a:2", node="a", pid=1)
    return FuzzTarget(
        name="leader_records",
        read=lambda data: leader_of(Lease(fence=1, record=data)),
        errors=(StoreError,),
        seeds=(lease_of(leader).record,),
        form=InputForm.JSON,
    )


# Histories


_Row = Float[np.ndarray, "k"]


@dyorc.program(name="p")
def _halve(x: Float[np.ndarray, "batch n m"]) -> Float[np.ndarray, "batch n m"]:
    return x / 2


@dyorc.program(name="q")
def _add_up(x: Float[np.ndarray, "batch n m"]) -> Float[np.ndarray, "batch m"]:
    return x.sum(axis=1)


@dyorc.workflow(name="m")
async def _flow(x: Float[np.ndarray, "n k"], scale: float = 1.0) -> _Row:
    if await dyorc.when(_halve(x[:1]), lambda value: value[0, 0] > scale):
        return x[0]
    return _add_up(_halve(x))


def _read_histories(path: Path) -> None:
    for history in read_histories(path):
        identities = Identities(history)
        results = RecordedResults(history, None)
        for name in history.inputs:
            results.input(name)
        for source in history.answer:
            identities.of(source)
        replay_all(Replayer(_flow), [history])


def build_histories(folder: Path) -> FuzzTarget:
    """Returns the target for recorded histories of requests."""
    rows, texts = np.arange(4, dtype=np.float32).reshape(2, 2), np.array([b"a", b""], object)
    kept = [KeptTensor.of(array, max_bytes=100) for array in (rows, texts)]
    history = RequestHistory(
        "r", "m", "1", 1.0, 2.0, {"x": kept[0], "t": kept[1]}, {"scale": 1.5},
        calls=[
            HistoryCall("p", (TensorSource(INPUT, 0, ([1, "..."], [[0, None, 2]])), TensorSource(CONSTANT, 0)),
                        outputs=(kept[0],)),
            HistoryCall("q", (TensorSource(0, 0),), outputs=(KeptTensor("FP32", (2,)),)),
            HistoryCall("r", (TensorSource(1, 0), TensorSource(INPUT, 1)), error=("ValueError", "bad")),
            HistoryCall("s", (TensorSource(INPUT, 0),), outputs=(), parts=((kept[0],), (kept[0],)), workflow=0, results=(0,)),
            HistoryCall("q", (), streams=(ReadStream(((TensorSource(3, 0, (), 1),),), is_ended=True),), is_ahead=True),
            HistoryCall("q", (), streams=(ReadStream(error=("ValueError", "bad")),)),
        ],
        nested=[NestedRun("n", (TensorSource(INPUT, 0),), is_cut=True)],
        decisions=[HistoryDecision("app.py:1", "when", (TensorSource(0, 0),), "True", 0)],
        constants=[kept[0]], answer=(TensorSource(1, 0, ([0],)),), parts=((TensorSource(3, 0, (), 0),),), format=FORMAT,
    )  # fmt: skip
    path = folder / "histories.jsonl"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        _read_histories(path)

    return FuzzTarget(
        name="history_files",
        read=read,
        errors=(ConfigurationError,),
        seeds=(msgspec.json.encode(history) + b"\n",),
        form=InputForm.JSON,
        words=(b"BYTES", b"FP64", b"\n", b"[1,0,[]]", b"-2", b"AAAA"),
    )


# Arenas

_NAME = "dyorc-arena-0123456789abcdef"


def _read_arena(folder: Path) -> Callable[[bytes], None]:
    path = folder / _NAME

    def read(data: bytes) -> None:
        with path.open("wb") as file:
            file.write(data)
            file.truncate(max(len(data), 2**16))
        usage_of(str(folder), _NAME)
        view = ArenaView(str(folder), _NAME)
        try:
            for block_id in (1, 2):
                memory = view.read_only(block_id, _DATA_START, 64)
                check(len(memory) == 64, "the view has another length")
                bytes(memory)
        finally:
            view.close()

    return read


_NUM_SLOTS = 4
_DATA_START = 2 * PAGE_BYTES


def build_arenas(folder: Path) -> FuzzTarget:
    """Returns the target for files of arenas: an input is the beginning of a file."""
    layout = ArenaLayout(_NUM_SLOTS, 2**16, int(_NAME[-16:], 16), os.getpid())
    entries = b"".join(number.to_bytes(8, "little") for number in (*[0] * 4, 1, _DATA_START, 64, 0, 2, _DATA_START, 64, 0))
    return FuzzTarget(
        name="arena_files",
        read=_read_arena(folder),
        errors=(TransportError,),
        seeds=(layout.encode().ljust(PAGE_BYTES, b"\0") + entries,),
        words=(b"DyOrcArn", bytes(8), b"\xff" * 8, (2**63).to_bytes(8, "little"), (2**64 - 64).to_bytes(8, "little")),
    )
