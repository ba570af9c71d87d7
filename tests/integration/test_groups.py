"""A program split over a group of processes: it answers as on one device, and the group lives and dies as a whole."""

import contextlib
import os
import queue
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from jaxtyping import Float, Int
from safetensors.torch import save_file
from torch import Tensor, nn

import dyorc
from dyorc.authoring.program import Program
from dyorc.config import LinkConfig, TransportConfig
from dyorc.errors import ProgramLoadError
from dyorc.planner.cluster import even_cluster
from dyorc.planner.plan import Plan
from dyorc.planner.plan.plan_file import read_plan, write_plan
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import capture_inference
from dyorc.planner.verify import mark_proved
from dyorc.replica.assignment import ForkServerSpec, Identity, ProgramSource, ReplicaAssignment, Uplink
from dyorc.replica.batch_results import BatchError, BatchResult
from dyorc.replica.fork_client import ForkClient, GroupSite
from dyorc.replica.member_group import load_planned
from tests.deadlines import TIMEOUT_S, wait_until
from tests.integration.fork_processes import fork_processes
from tests.server_process import target

NUM_SAMPLES = 4


class Net(nn.Module):
    """Reads an embedding by two matrices; one of its numbers is computed when it is made, and not saved."""

    def __init__(self, activation: Callable[[Tensor], Tensor] = nn.functional.gelu) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)
        self.register_buffer("scale", torch.tensor(3.0), persistent=False)
        self.activation = activation

    def forward(self, tokens: Tensor) -> Tensor:
        return self.scale * self.down(self.activation(self.up(self.words(tokens)))).sum(1)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """With a short path, as sockets need; holds a net's weights, its plan, and that of a pipeline."""
    found = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    torch.manual_seed(0)
    save_file(Net().state_dict(), found / "net.safetensors")
    program = capture_inference(Net(), (torch.zeros(NUM_SAMPLES, 6, dtype=torch.int64),))
    for planner, name in (("megatron", "net.plan"), ("pipeline", "pipeline.plan")):
        write_plan(mark_proved(program, PLANNERS[planner](program, even_cluster(2))), found / name)
    yield found
    wait_until(lambda: not fork_processes(found), "all processes have ended")
    assert not (found / "forks").exists()
    shutil.rmtree(found)


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[ForkClient]:
    """Keeps the fork server, which would otherwise be started for each test."""
    found = ForkClient(ForkServerSpec(folder=f"{folder}/forks"))
    found.open()
    yield found
    found.close(TIMEOUT_S)


def _assignment(folder: Path) -> ReplicaAssignment:
    return ReplicaAssignment(
        source=ProgramSource(folder=str(folder), target="net.py:net", program="net"),
        identity=Identity(replica_id="net#1", program="net", node="here"),
        uplink=Uplink(address=f"unix://{folder}/link", link=LinkConfig(), transport=TransportConfig(arena_folder=str(folder))),
        num_threads=1,
        graceful_s=1.0,
    )


def _site(folder: Path, lost: Callable[[str], None] = lambda reason: None) -> GroupSite:
    return GroupSite(ForkClient(ForkServerSpec(folder=f"{folder}/forks")), _assignment(folder), lost)


def _program(folder: Path, make: Callable[[], nn.Module] = Net, plan: str = "net.plan") -> Program:
    class Run:
        def __init__(self) -> None:
            self.net = dyorc.load_module(make, folder / "net.safetensors")

        def __call__(self, tokens: Int[Tensor, "batch 6"]) -> Float[Tensor, "batch 16"]:
            return self.net(tokens)

    return dyorc.program(name="net", max_batch_size=NUM_SAMPLES, plan=str(folder / plan))(Run)()


def _expected(folder: Path, tokens: Tensor) -> Tensor:
    with torch.inference_mode():
        return dyorc.load_module(Net, folder / "net.safetensors")(tokens)


def test_a_group_answers_batches_of_any_size_as_one_process_does(folder: Path, client: ForkClient) -> None:
    executor, group = load_planned(_program(folder), _site(folder))
    try:
        tokens = torch.randint(0, 50, (NUM_SAMPLES, 6))
        for num_samples in range(1, NUM_SAMPLES + 1):
            found = executor.run([list(tokens[:num_samples].numpy())], [])
            assert isinstance(found, BatchResult)
            torch.testing.assert_close(torch.tensor(found.outputs[0]), _expected(folder, tokens[:num_samples]))
        pids = group.pids
        assert [psutil.Process(pid).name() for pid in pids] == ["dyorc-rank-net"] * 2
    finally:
        group.close()
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), "the members have ended")


def test_the_stages_of_a_pipeline_answer_as_one_process_does(folder: Path, client: ForkClient) -> None:
    plan = read_plan(folder / "pipeline.plan")
    homes = {name: [plan.meshes[plan.tensors[each].mesh].ranks for each in ids] for name, ids in plan.sources.items()}
    assert {name: homes[name] for name in ("words.weight", "down.weight")} == {"words.weight": [(0,)], "down.weight": [(1,)]}
    executor, group = load_planned(_program(folder, plan="pipeline.plan"), _site(folder))
    try:
        tokens = torch.randint(0, 50, (NUM_SAMPLES, 6))
        for num_samples in (NUM_SAMPLES, 1):
            found = executor.run([list(tokens[:num_samples].numpy())], [])
            assert isinstance(found, BatchResult)
            torch.testing.assert_close(torch.tensor(found.outputs[0]), _expected(folder, tokens[:num_samples]))
    finally:
        group.close()


def test_an_operation_that_raises_fails_its_batch_and_nothing_else(folder: Path, client: ForkClient) -> None:
    executor, group = load_planned(_program(folder), _site(folder))
    try:
        tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
        error = executor.run([list((tokens * 1000).numpy())], [])
        assert isinstance(error, BatchError)
        assert (error.error_type, error.message) == ("IndexError", "index out of range in self")
        found = executor.run([list(tokens.numpy())], [])
        assert isinstance(found, BatchResult)
        torch.testing.assert_close(torch.tensor(found.outputs[0]), _expected(folder, tokens))
    finally:
        group.close()


def test_the_end_of_a_member_is_the_end_of_its_leader_even_when_nothing_runs(folder: Path, client: ForkClient) -> None:
    reasons = queue.SimpleQueue[str]()
    _, group = load_planned(_program(folder), _site(folder, reasons.put))
    try:
        os.kill(group.pids[1], signal.SIGKILL)
        assert reasons.get(timeout=TIMEOUT_S).startswith("rank 1 of its group is gone: its process")
    finally:
        group.close()


def test_members_are_killed_when_their_leader_ends_even_if_they_are_stopped(folder: Path, client: ForkClient) -> None:
    source = ProgramSource(folder=str(folder), target=target("probe", "probe"), program="probe")
    assignment = replace(_assignment(folder), source=source, environment={"FACTS_FOLDER": str(folder)})
    leader = client.fork(assignment, is_adopted=True)
    with contextlib.closing(client.fork_member(_assignment(folder), leader.process.pid)):
        pid = next(each.pid for each in fork_processes(folder) if each.name() == "dyorc-rank-net")
        os.kill(pid, signal.SIGSTOP)
        leader.kill()
        wait_until(lambda: not psutil.pid_exists(pid), "the member has ended")
    leader.close()


def _refused(folder: Path, program: Program) -> str:
    with pytest.raises(ProgramLoadError) as caught:
        load_planned(program, _site(folder))
    return caught.value.message


def test_a_module_that_is_not_the_planned_one_is_refused(folder: Path, client: ForkClient) -> None:
    class Wider(Net):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Linear(16, 32)

    for checked in (folder / "forks").glob("checked.*"):  # by earlier tests: the net itself fits
        checked.unlink()
    text = _refused(folder, _program(folder, lambda: Net(torch.relu)))
    assert "it is another model, or its code or shapes have changed: plan it again" in text
    save_file(Wider().state_dict(), folder / "net.safetensors.wider")
    shutil.copy(folder / "net.safetensors", folder / "kept")
    try:
        os.replace(folder / "net.safetensors.wider", folder / "net.safetensors")
        text = _refused(folder, _program(folder))
        assert "net.plan does not fit: the plan needs" in text
        assert "net.safetensors holds it as float32 [" in text
    finally:
        os.replace(folder / "kept", folder / "net.safetensors")
    assert not [each for each in fork_processes(folder) if each.name() == "dyorc-rank-net"]


def test_a_program_that_loads_no_module_is_refused(folder: Path, client: ForkClient) -> None:
    @dyorc.program(plan=str(folder / "net.plan"), max_batch_size=NUM_SAMPLES)
    class Plain:
        def __call__(self, tokens: Int[Tensor, "batch 6"]) -> Int[Tensor, "batch 6"]:
            return tokens

    assert "loads no module with dyorc.load_module" in _refused(folder, Plain())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda plan: replace(plan, inference=None), "is the plan of a training step"),
        (lambda plan: replace(plan, inference=replace(plan.inference, is_proved=False)), "has not been proved"),
    ],
)
def test_a_plan_that_cannot_be_served_is_refused(
    folder: Path, client: ForkClient, change: Callable[[Plan], Plan], text: str
) -> None:
    write_plan(change(read_plan(folder / "net.plan")), folder / "other.plan")
    assert text in _refused(folder, _program(folder, plan="other.plan"))
