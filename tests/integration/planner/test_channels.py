"""A plan's messages go through shared memory and gRPC as they do through gloo; nothing is left of it, however the ranks end."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.papers.channels import copies, training_rows
from benchmarks.papers.table import Relation
from dyorc.errors import PlanRunError, TransportError
from dyorc.planner.cluster import one_machine
from dyorc.planner.models import gpt
from dyorc.planner.passes.channels import with_channels
from dyorc.planner.plan import ChannelKind, Plan, Transfer
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import PARTIAL, REPLICATE, Shard
from dyorc.planner.runtime import RankForkServer, RankOptions, Ranks, Training, train_on
from dyorc.planner.runtime.message_lanes import MEMORY_FOLDER
from dyorc.transport.arena_file import open_arena, read_layout
from tests.deadlines import TIMEOUT_S
from tests.integration.planner.plans import Place, moved, product, product_value
from tests.unit.planner.examples import example

_OTHERS = [ChannelKind.STATIC, ChannelKind.DYNAMIC, ChannelKind.GRPC]


@pytest.fixture(scope="module")
def ranks(fork_server: RankForkServer) -> Iterator[Ranks]:
    with Ranks(RankOptions(num_ranks=2), fork_server.fork) as started:
        pids = started.pids
        yield started
    assert not _arenas_of(pids)


def _arenas_of(pids: tuple[int, ...]) -> list[str]:
    """The arenas that have a name and were made by some processes."""
    found: list[str] = []
    for path in Path(MEMORY_FOLDER).glob("dyorc-arena-*"):
        try:
            descriptor = open_arena(MEMORY_FOLDER, path.name, os.O_RDONLY)
        except TransportError:  # others come and go
            continue
        try:
            found += [path.name] if read_layout(descriptor, path.name).pid in pids else []
        finally:
            os.close(descriptor)
    return found


def _plan(kind: ChannelKind, **options: int) -> Plan:
    plan = with_channels(PLANNERS["parameter_server"](example("gpt").program, one_machine(2), **options), one_machine(2), [kind])
    edges = {edge.kind for step in plan.steps if isinstance(step, Transfer) for edge in step.edges}
    assert edges == ({kind} if kind is not ChannelKind.GLOO else set())
    return plan


def test_training_over_each_channel_is_that_over_gloo_to_the_bit(ranks: Ranks) -> None:
    found = example("gpt")
    inputs = {name: found.sources[name] for name in found.program.inputs}

    def trained(kind: ChannelKind, *, overlap: bool) -> dict[str, torch.Tensor]:
        training = Training(steps=3, overlap=overlap)
        done = train_on(ranks, _plan(kind, servers=1), found.program, found.sources, lambda step: inputs, training)
        return {**done.sources, "losses": torch.tensor(done.losses, dtype=torch.float64)}

    expected = trained(ChannelKind.GLOO, overlap=False)
    assert float(expected["losses"][0]) == pytest.approx(float(found.results[found.program.loss]), abs=1e-9, rel=0)
    for kind in _OTHERS:
        for overlap in (False, True):
            for name, tensor in trained(kind, overlap=overlap).items():
                assert torch.equal(tensor, expected[name]), (kind, overlap, name)
    assert not _arenas_of(ranks.pids)  # they have no names while they are used


def test_each_channel_brings_pieces_of_any_layout_and_results_that_stay(ranks: Ranks) -> None:
    places = [
        Place((0,), (1,), ((1,),), (REPLICATE,)),
        Place((0, 1), (2,), ((3, 1),), (Shard(0),)),
        Place((1, 0), (2,), ((1, 0),), (PARTIAL,)),
    ]
    for kind in _OTHERS:
        for before in places:
            for after in places:
                plan = with_channels(moved(before, after), one_machine(2), [kind])
                (result,) = ranks.run(plan, product().sources).results.values()
                torch.testing.assert_close(result, product_value(), rtol=0, atol=1e-12, msg=f"{kind}: {before} to {after}")


def test_static_messages_are_copied_once_and_dynamic_ones_too(ranks: Ranks) -> None:
    found = example("gpt")
    copied: dict[ChannelKind, int] = {}
    parameters = sum(found.program.values[name].num_bytes for name in found.program.parameters)
    for kind in _OTHERS:
        ran = ranks.run(_plan(kind, servers=1), found.sources)
        copied[kind] = sum(ran.copied_bytes)
        assert sum(ran.sent_bytes) == 2 * parameters  # pulled, and pushed
    # gradients are results here: they are copied out of what is to be written again
    assert copied[ChannelKind.STATIC] == copied[ChannelKind.DYNAMIC] == 3 * parameters
    assert copied[ChannelKind.GRPC] < parameters  # gRPC's own copies are not counted


@pytest.mark.slow
def test_the_table_counts_copies_and_finds_all_channels_equal(ranks: Ranks) -> None:
    static, dynamic, traced = copies(ranks)
    assert (static.ours, dynamic.ours, traced.relation) == ("1", "1", Relation.DIFFERS)
    _, same = training_rows(ranks, "GPT", lambda: gpt(layers=1), 1)
    assert same.relation is Relation.AGREES


def test_a_killed_rank_is_named_and_leaves_nothing_in_shared_memory(ranks: Ranks) -> None:
    """The last test of these ranks: they have ended then."""
    found, pids = example("gpt"), ranks.pids
    ranks.load(_plan(ChannelKind.STATIC, servers=1), found.sources)
    os.kill(pids[0], signal.SIGSTOP)  # the worker: the server waits for it in the middle of the step
    before = ranks.where()[1].run
    ranks.begin_step({name: found.sources[name] for name in found.program.inputs})
    deadline_s = time.monotonic() + TIMEOUT_S
    while ranks.where()[1].run == before and time.monotonic() < deadline_s:
        time.sleep(0.01)
    os.kill(pids[0], signal.SIGKILL)
    with pytest.raises(PlanRunError, match="rank 0 was killed by SIGKILL") as raised:
        ranks.end_step()
    assert raised.value.rank == 0
    assert not _arenas_of(pids)


def test_ranks_that_are_killed_while_their_memory_has_a_name_leave_nothing(fork_server: RankForkServer) -> None:
    found = example("gpt")
    with Ranks(RankOptions(num_ranks=2), fork_server.fork) as started:
        pids, errors = started.pids, list[PlanRunError]()
        os.kill(pids[1], signal.SIGSTOP)  # rank 0 makes its memory, and waits for the other's

        def load() -> None:
            try:
                started.load(_plan(ChannelKind.DYNAMIC, servers=1), found.sources)
            except PlanRunError as error:
                errors.append(error)

        thread = threading.Thread(target=load)
        thread.start()
        deadline_s = time.monotonic() + TIMEOUT_S
        while not _arenas_of(pids) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert _arenas_of(pids)
        os.kill(pids[1], signal.SIGKILL)
        thread.join(TIMEOUT_S)
        assert [error.rank for error in errors] == [1]
    assert not _arenas_of(pids)
