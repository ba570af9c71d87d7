"""A rank that dies, raises or hangs ends the run: the error names it and its step, and nothing is left."""

import os
import signal
import socket
from dataclasses import replace

import pytest

from dyorc.errors import PlanError, PlanRunError
from dyorc.planner.plan import Apply, Plan
from dyorc.planner.runtime import RankForkServer, RankOptions, Ranks
from dyorc.planner.runtime.rank_processes import RankProcess, spawn_rank
from dyorc.planner.runtime.rank_progress import RankPosition
from tests.deadlines import TIMEOUT_S, wait_until
from tests.integration.planner.plans import data_parallel
from tests.unit.planner.examples import example


def _wait_until_rank_1_computes(ranks: Ranks, plan: Plan) -> int:
    """Returns the step of its first operation, once it has begun that."""
    first = next(n for n, step in enumerate(plan.steps) if isinstance(step, Apply))
    wait_until(lambda: ranks.where()[1] == RankPosition(1, first), "rank 1 computes")
    return first


def test_a_killed_rank_is_named_with_its_step() -> None:
    found = example("gpt")
    plan = data_parallel(found, (1, 1))
    with Ranks(RankOptions(num_ranks=2, slowness=(1, 1e9))) as ranks:  # rank 1 never ends its first operation
        ranks.load(plan, found.sources)
        ranks.begin_step({name: found.sources[name] for name in found.program.inputs})
        first = _wait_until_rank_1_computes(ranks, plan)
        os.kill(ranks.pids[1], signal.SIGKILL)
        with pytest.raises(PlanRunError, match=r"rank 1 was killed by SIGKILL in run 1, at step \d+ of \d+, aten\.") as raised:
            ranks.end_step()
        assert raised.value.rank == 1
        assert raised.value.step == first
        with pytest.raises(PlanRunError, match="the ranks have ended"):
            ranks.run(plan, found.sources)


def test_a_stopped_rank_is_named_when_time_is_up(fork_server: RankForkServer) -> None:
    found = example("gpt")
    with Ranks(RankOptions(num_ranks=2), fork_server.fork) as ranks:
        ranks.load(data_parallel(found, (1, 1)), found.sources)
        ranks._options = replace(ranks._options, timeout_s=3)  # from now on: loading may take longer on a busy machine
        os.kill(ranks.pids[0], signal.SIGSTOP)
        ranks.begin_step({name: found.sources[name] for name in found.program.inputs})
        with pytest.raises(PlanRunError, match="rank 0 did not go on within 3 s"):
            ranks.end_step()


def test_what_a_rank_raises_is_quoted_with_its_step(fork_server: RankForkServer) -> None:
    found = example("gpt")
    plan = data_parallel(found, (1, 1))
    at = next(n for n, step in enumerate(plan.steps) if isinstance(step, Apply) and step.op == "aten.mm.default")
    broken = replace(plan, steps=(*plan.steps[:at], replace(plan.steps[at], op="aten.bmm.default"), *plan.steps[at + 1 :]))
    with Ranks(RankOptions(num_ranks=2), fork_server.fork) as ranks:
        with pytest.raises(PlanError, match=r"the plan needs input_0 as int64 \[8, 16\], and it was given as int64 \[4, 16\]"):
            ranks.run(plan, {**found.sources, "input_0": found.sources["input_0"][:4]})
        ranks.run(plan, found.sources)  # what is refused before a step begins leaves the ranks as they were
        with pytest.raises(PlanRunError, match=rf"rank [01] raised RuntimeError: .* at step {at} of \d+, aten\.bmm") as raised:
            ranks.run(broken, found.sources)
    assert raised.value.step == at


def test_a_rank_ends_with_its_parent_even_while_it_computes() -> None:
    found = example("gpt")
    plan = data_parallel(found, (1, 1))
    processes: list[RankProcess] = []

    def start_rank(send_timeout_s: float) -> RankProcess:
        processes.append(spawn_rank(send_timeout_s))
        return processes[-1]

    ranks = Ranks(RankOptions(num_ranks=2, slowness=(1, 1e9)), start_rank)  # rank 1 never ends its first operation
    ranks.start()
    try:
        ranks.load(plan, found.sources)
        ranks.begin_step({name: found.sources[name] for name in found.program.inputs})
        _wait_until_rank_1_computes(ranks, plan)
        for process in processes:
            process.wire.end.shutdown(socket.SHUT_RDWR)  # as it is when the parent is gone
        assert [process.wait(TIMEOUT_S) for process in processes] == [0, 0]
    finally:
        ranks.stop(is_abrupt=True)
