"""What the runtime decides without ranks: moves, schedules, shaped links, who is to blame; and what it refuses."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dyorc.errors import CheckpointError, PlanError
from dyorc.planner.plan import Collective, CollectiveKind, MeshAxis, Plan, PlanBuilder
from dyorc.planner.program import REPLICATE, Shard
from dyorc.planner.runtime import Checkpoint, LinkShape, run
from dyorc.planner.runtime.checkpoint import check_checkpoint, commit, is_lasting, write_pieces
from dyorc.planner.runtime.communication_channels import InlineChannel, RankChannels
from dyorc.planner.runtime.links import Links
from dyorc.planner.runtime.rank_messages import FailedMessage
from dyorc.planner.runtime.rank_progress import RankExited, RankPosition, error_of
from dyorc.planner.runtime.rank_schedule import Compute, schedule_of
from dyorc.planner.runtime.region_moves import Key, moves_between, pieces_at
from dyorc.planner.runtime.schedule_executor import Emulated, ScheduleExecutor
from dyorc.planner.runtime.shaping import TokenBucket
from tests.integration.planner.plans import data_parallel
from tests.unit.planner.examples import example


def test_a_region_comes_from_the_nearest_replica() -> None:
    found = example("gpt")
    builder = PlanBuilder(found.program)
    builder.mesh("one", [MeshAxis(name="copy", size=2), MeshAxis(name="half", size=2)], [0, 1, 4, 5])
    builder.mesh("two", [MeshAxis(name="half", size=2)], [1, 6])
    source = builder.source("tokens.weight", "one", [REPLICATE, Shard(0)])
    target = builder.want("tokens.weight", "two", [Shard(0)])
    moves = list(moves_between(builder.draft(), source, target))
    assert [(move.source_rank, move.target_rank, move.region[0]) for move in moves] == [(0, 1, (0, 32)), (5, 6, (32, 64))]


def test_pieces_are_released_after_their_last_use() -> None:
    found = example("gpt")
    plan = data_parallel(found, (1, 0))
    schedule = schedule_of(plan, 0)
    held: set[Key] = {piece.key for ids in plan.sources.values() for name in ids for piece in pieces_at(plan, name)}
    for instruction, released in zip(schedule.instructions, schedule.releases, strict=True):
        held |= set(instruction.makes)
        assert held.issuperset(instruction.reads)
        held -= set(released)
    assert {key.tensor for key in held} == set(plan.results.values())


def test_a_slow_rank_does_its_work_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from dyorc.planner.runtime import schedule_executor

    found = example("gpt")
    schedule = schedule_of(data_parallel(found, (1,)), 0)
    sources = {Key(ids[0], 0): found.sources[name] for name, ids in schedule.plan.sources.items()}
    links = Links(rank=0, num_ranks=1, device=torch.device("cpu"))
    num_computed, prepare = [0], schedule_executor.prepare_operation

    def counting(*arguments: Any) -> schedule_executor.Operation:
        operation = prepare(*arguments)

        def counted(tensors: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
            num_computed[0] += 1
            return operation(tensors)

        return counted

    monkeypatch.setattr(schedule_executor, "prepare_operation", counting)
    made = ScheduleExecutor(
        schedule, links, RankChannels(InlineChannel), emulated=Emulated(slowness=2.5), reach=lambda step: None
    ).run(sources)
    num_operations = sum(isinstance(instruction, Compute) for instruction in schedule.instructions)
    assert num_computed[0] == int(2.5 * num_operations)
    loss = schedule.plan.results[found.program.loss]
    torch.testing.assert_close(made[Key(loss, 0)], found.results[found.program.loss])


def test_a_shaped_link_lets_messages_leave_at_its_rate() -> None:
    bucket = TokenBucket(LinkShape(bytes_per_s=1000, latency_s=0.1, burst_bytes=500))
    assert bucket.departure_s(500, 10.0) == pytest.approx(10.1)  # the burst
    assert bucket.departure_s(1000, 10.0) == pytest.approx(11.1)
    assert bucket.departure_s(1000, 10.5) == pytest.approx(12.1)  # after the one before
    assert bucket.departure_s(500, 20.0) == pytest.approx(20.1)  # rested


def test_the_rank_to_blame_is_the_one_that_explains_itself() -> None:
    where = [RankPosition(3, 7), RankPosition(3, 5), RankPosition(3, 7)]
    lost = FailedMessage(error="LinkLostError: Connection closed by peer", is_of_link=True)
    killed = error_of({0: lost, 1: RankExited(-9)}, [2], where, None, 5)
    assert killed.rank == 1
    assert "killed by SIGKILL" in str(killed)
    assert error_of({0: lost, 2: FailedMessage(error="ValueError: no", is_of_link=False)}, [1], where, None, 5).rank == 2
    missing = error_of({0: lost}, [1, 2], where, None, 5)
    assert missing.rank == 1  # rank 2 waits further on
    assert "Connection closed" in str(missing)


def test_a_plan_that_is_not_proved_does_not_run() -> None:
    found = example("gpt")
    with pytest.raises(PlanError, match="cannot be proved without its program: give it, or allow unverified plans"):
        run(data_parallel(found, (1, 1)), found.sources)
    plan = data_parallel(found, (1, 1))
    at = next(n for n, step in enumerate(plan.steps) if isinstance(step, Collective) and step.kind is CollectiveKind.ALL_REDUCE)
    torn = replace(plan, steps=plan.steps[:at] + plan.steps[at + 1 :])
    with pytest.raises(PlanError, match=r"the plan by data parallel is not proved, so it does not run: (.|\n)*step \d+"):
        run(torn, found.sources, program=found.program)


def _written(plan: Plan, folder: Path) -> None:
    """Writes a checkpoint of the example's sources, as ranks do."""
    sources, written = example("gpt").sources, {}
    for rank in range(plan.num_ranks):
        state = {
            piece.key: sources[value][tuple(slice(a, b) for a, b in piece.region)]
            for value, ids in plan.sources.items()
            for name in ids
            for piece in pieces_at(plan, name)
            if piece.rank == rank and is_lasting(plan, value)
        }
        written[f"rank-{rank}.safetensors"] = write_pieces(plan, rank, state, folder / f"rank-{rank}.safetensors")
    commit(plan, 12, folder, written)


def test_a_checkpoint_holds_each_region_once_and_gives_back_any_other(tmp_path: Path) -> None:
    found = example("gpt")
    plan = data_parallel(found, (3, 1), is_sharded=True)
    _written(plan, tmp_path)
    assert check_checkpoint(tmp_path, plan).step == 12
    parameters_bytes = sum(found.program.values[name].num_bytes for name in plan.sources if is_lasting(plan, name))
    stored = [path.stat().st_size for path in tmp_path.glob("*.safetensors")]
    assert parameters_bytes <= sum(stored) < 1.1 * parameters_bytes + 2 * 8192
    with Checkpoint.open(tmp_path) as checkpoint:
        weight = found.sources["tokens.weight"]
        assert torch.equal(checkpoint.read("tokens.weight", ((40, 60), (3, 9))), weight[40:60, 3:9])
        assert torch.equal(checkpoint.read("tokens.weight"), weight)


def _cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize(
    ("file", "harm", "error"),
    [
        ("rank-1.safetensors", _cut_off, r"rank-1.safetensors .* its size is not what the index says"),
        ("rank-1.safetensors", _flip, r"rank-1.safetensors .* its content is not what the index says"),
        ("rank-0.safetensors", Path.unlink, "lacks its file rank-0.safetensors"),
        ("index.json", _cut_off, "index.json is not the index of a checkpoint"),
        ("index.json", lambda path: path.write_text('{"format": "another 7"}'), "index.json is not the index of a checkpoint"),
        ("index.json", Path.unlink, "holds no checkpoint"),
    ],
    ids=["cut off", "a bit", "no file", "half an index", "another format", "no index"],
)
def test_a_torn_checkpoint_is_refused_with_its_file(
    tmp_path: Path, file: str, harm: Callable[[Path], object], error: str
) -> None:
    plan = data_parallel(example("gpt"), (3, 1), is_sharded=True)
    _written(plan, tmp_path)
    harm(tmp_path / file)
    with pytest.raises(CheckpointError, match=error):
        check_checkpoint(tmp_path, plan)


def test_a_checkpoint_of_another_model_is_refused_with_the_value(tmp_path: Path) -> None:
    _written(data_parallel(example("gpt"), (1, 1)), tmp_path)
    with pytest.raises(CheckpointError, match=r"the plan needs net.0.weight as float64 \[8, 3, 3, 3\], and it holds nothing"):
        check_checkpoint(tmp_path, data_parallel(example("net"), (1, 1)))


def test_a_checkpoint_that_was_not_finished_leaves_the_one_before(tmp_path: Path) -> None:
    plan = data_parallel(example("gpt"), (3, 1))
    _written(plan, tmp_path)
    before = hashlib.sha256((tmp_path / "index.json").read_bytes()).digest()
    (tmp_path / "next-0.safetensors").write_bytes(b"half")
    with pytest.raises(FileNotFoundError):
        commit(plan, 13, tmp_path, {"next-0.safetensors": (), "next-1.safetensors": ()})
    assert hashlib.sha256((tmp_path / "index.json").read_bytes()).digest() == before
    assert check_checkpoint(tmp_path, plan).step == 12
    assert not list(tmp_path.glob(".index-*"))
