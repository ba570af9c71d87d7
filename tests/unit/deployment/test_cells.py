"""No cell serves something older than a change that was acknowledged, whichever cell ends when."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime

import msgspec
import pytest

from dyorc.deployment import peers
from dyorc.deployment.persistence import record_writer
from dyorc.deployment.state import DeploymentState, ModelHistory
from dyorc.errors import ConflictError, StoreError
from dyorc.protocol.deployment_changes import Deploy, DeploymentChange, Rollback, Undeploy
from dyorc.supervisor import cell_peers, hub
from tests.deadlines import wait_until_async
from tests.unit.deployment.cells import NAME, Cell, Cells, cells
from tests.unit.deployment.test_state import FIRST, version

pytestmark = pytest.mark.anyio

ROLLBACK = Rollback("flow")
CHANGES: list[tuple[DeploymentChange, tuple[str, Mapping[str, float]] | None]] = [
    (ROLLBACK, ("2", {})),
    (Deploy(model="flow", version="1", is_incompatible_allowed=True), ("1", {})),
    (Deploy(model="flow", version="1", share=0.25, is_incompatible_allowed=True), ("3", {"1": 0.25})),
    (Undeploy("flow"), None),
]
KINDS = pytest.mark.parametrize(("change", "shown"), CHANGES, ids=["rollback", "deploy", "share", "undeploy"])


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a cell that does not answer."""
    monkeypatch.setattr(hub, "_ANSWER_TIMEOUT_S", 0.05)
    monkeypatch.setattr(cell_peers, "_ANSWER_TIMEOUT_S", 0.1)
    monkeypatch.setattr(peers, "_TRY_AGAIN_S", 0.01)


@contextlib.asynccontextmanager
async def noting_and_telling_nobody(supervisor: Cells, cell: Cell, change: DeploymentChange) -> AsyncGenerator[None]:
    """Has a cell note a change; it comes no further while entered."""
    is_noted, goes_on = asyncio.Event(), asyncio.Event()

    async def hold_up() -> None:
        is_noted.set()
        await goes_on.wait()

    supervisor.notes.is_noted = hold_up
    changing = asyncio.create_task(cell.deployer.change(change))
    await is_noted.wait()
    try:
        yield
    finally:
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)


async def until_shown(cell: Cell, shown: object) -> None:
    await wait_until_async(lambda: cell.loaded.shown == shown, f"cell {cell.number} shows {shown}", 10)


@KINDS
async def test_a_cell_that_starts_gets_what_was_deployed_since_it_read(change: DeploymentChange, shown: object) -> None:
    async with cells() as supervisor:
        first, second = await supervisor.start(0), await supervisor.order(1)
        await first.deployer.change(change)
        await supervisor.lose(0)
        await second.begin()
        assert second.loaded.shown == shown


@KINDS
async def test_a_cell_that_starts_gets_what_another_noted_before_it_ended(change: DeploymentChange, shown: object) -> None:
    async with cells() as supervisor:
        first, second = await supervisor.start(0), await supervisor.order(1)
        async with noting_and_telling_nobody(supervisor, first, change):
            await supervisor.lose(0)
        await second.begin()
        assert second.loaded.shown == shown


async def test_a_cell_that_starts_without_a_store_gets_what_it_could_not_be_told() -> None:
    async with cells() as supervisor:
        first, second = await supervisor.start(0), await supervisor.order(1)
        second.report_states()  # from now on it is asked, and does not answer yet
        await first.deployer.change(ROLLBACK)
        await supervisor.lose(0)
        supervisor.notes.is_down = True
        await second.begin()
        assert second.loaded.shown == ("2", {})


@KINDS
async def test_a_change_that_was_noted_and_told_to_nobody_is_found_when_its_maker_ends(
    change: DeploymentChange, shown: object
) -> None:
    async with cells() as supervisor:
        first, second = await supervisor.start(0), await supervisor.start(1)
        async with noting_and_telling_nobody(supervisor, first, change):
            assert second.loaded.shown == ("3", {})
            await supervisor.lose(0)
        await until_shown(second, shown)
        assert (await supervisor.start(0)).loaded.shown == shown


async def test_a_loss_while_the_store_is_down_is_made_up_for_later() -> None:
    async with cells() as supervisor:
        first, second = await supervisor.start(0), await supervisor.start(1)
        async with noting_and_telling_nobody(supervisor, first, ROLLBACK):
            supervisor.notes.is_down = True
            await supervisor.lose(0)
        with pytest.raises(StoreError):
            await second.deployer.change(ROLLBACK)  # at once
        assert second.loaded.shown == ("3", {})
        supervisor.notes.is_down = False
        await until_shown(second, ("2", {}))


async def test_cells_that_restart_at_once_find_what_was_noted_and_told_to_nobody() -> None:
    async with cells() as supervisor:
        first, _ = await supervisor.start(0), await supervisor.start(1)
        await first.deployer.change(Deploy(model="flow", version="1", share=0.5, is_incompatible_allowed=True))
        async with noting_and_telling_nobody(supervisor, first, ROLLBACK):
            await supervisor.lose(1)
            await supervisor.lose(0)
        starting = [await supervisor.order(number) for number in (0, 1)]
        assert [cell.loaded.shown for cell in starting] == [("3", {})] * 2, "not what the supervisor remembers"


async def test_a_cell_that_finds_a_newer_note_tells_the_others() -> None:
    async with cells() as supervisor:
        first = await supervisor.start(0)
        record = first.deployer.record
        rolled_back = record.with_history("flow", record.lines["flow"].roll_back())
        supervisor.notes.values[NAME] = rolled_back.to_json()  # another server of the same files
        await supervisor.start(1)
        await until_shown(first, ("2", {}))


async def test_a_change_is_based_on_what_the_store_has() -> None:
    async with cells() as supervisor:
        first = await supervisor.start(0)
        record = first.deployer.record
        supervisor.notes.values[NAME] = record.with_history("flow", record.lines["flow"].roll_back()).to_json()
        await first.deployer.change(ROLLBACK)
        assert first.loaded.shown == ("1", {}), "the second rollback of two"


async def test_a_target_that_was_never_deployed_is_not_taken_from_a_newer_note() -> None:
    async with cells() as supervisor:
        supervisor.notes.values[NAME] = DeploymentState(1, {"flow": FIRST}).to_json()
        first = await supervisor.start(0)
        elsewhere = ModelHistory.starting_with(msgspec.structs.replace(version("1"), deployed_s=7.0), origin=FIRST.origin)
        supervisor.notes.values[NAME] = DeploymentState(2, {"flow": elsewhere}).to_json()  # of a server that read another disk
        await first.deployer.read_again()
        assert first.deployer.record == DeploymentState(2, {"flow": FIRST})


async def test_a_change_that_was_noted_with_an_error_is_not_overwritten() -> None:
    async with cells() as supervisor:
        first = await supervisor.start(0)

        async def fail() -> None:
            raise StoreError("the connection was lost after the note was written")

        supervisor.notes.is_noted = fail
        with pytest.raises(StoreError):
            await first.deployer.change(Deploy(model="flow", version="1", is_incompatible_allowed=True))
        assert first.loaded.shown == ("3", {})
        supervisor.notes.is_noted = lambda: asyncio.sleep(0)
        await first.deployer.change(Undeploy("flow", "1"))
        assert first.loaded.shown is None, "version 1 had been deployed, as the next leader or cell would find"


async def test_a_change_is_acknowledged_once_all_cells_show_it() -> None:
    async with cells() as supervisor:
        first, second = await supervisor.start(0), await supervisor.order(1)
        second.loaded.gate.clear()
        async with noting_and_telling_nobody(supervisor, first, ROLLBACK):
            beginning = asyncio.create_task(second.begin())
            await wait_until_async(lambda: "2" in second.loaded.names(), "it loads what it has found in the store", 10)
            telling = asyncio.create_task(first.deploying.show(second.deployer.record, 10.0))
            done, _ = await asyncio.wait([telling], timeout=0.1)
            assert not done
            assert not beginning.done()
            second.loaded.gate.set()
            await telling
            assert second.loaded.shown == ("2", {})
            await beginning


async def test_a_cell_that_cannot_load_what_is_deployed_goes_on_trying() -> None:
    async with cells() as supervisor:
        first, second = await supervisor.start(0), await supervisor.start(1)
        async with noting_and_telling_nobody(supervisor, first, ROLLBACK):
            second.loaded.failures = {"2"}
            await supervisor.lose(0)
        await wait_until_async(lambda: "2" in second.loaded.names(), "it tries", 10)
        second.loaded.failures.clear()
        await until_shown(second, ("2", {}))


async def test_what_a_lost_cell_has_made_others_load_leaves_unless_it_is_deployed() -> None:
    async with cells(3) as supervisor:
        first, second, third = [await supervisor.start(number) for number in range(3)]
        third.loaded.gate.clear()
        changing = asyncio.create_task(first.deployer.change(ROLLBACK))
        await wait_until_async(
            lambda: "2" in second.loaded.names() & third.loaded.names(), "one has loaded it, one is loading it", 10
        )
        await supervisor.lose(0)
        changing.cancel()
        await wait_until_async(lambda: "2" not in second.loaded.names() | third.loaded.names(), "it has left", 10)
        third.loaded.gate.set()
        async with asyncio.timeout(1.0):  # nobody waits for the turn of a cell that has ended
            await second.deployer.change(Deploy(model="flow", version="1", is_incompatible_allowed=True))
        assert [cell.loaded.names() for cell in (second, third)] == [{"1", "3"}, {"1", "3"}]
        assert third.loaded.shown == ("1", {})


async def test_a_cell_keeps_its_turn_while_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_HOLD_S", 0.01)
    async with cells() as supervisor:
        first, second = await supervisor.start(0), await supervisor.start(1)
        async with first.deploying.turn("a test"):
            since = first.deployer.work()["since"]  # type: ignore[index]
            await wait_until_async(lambda: len(second.asked) > 3, "it says again and again that it has the turn", 10)
    assert {(what, tuple(value)) for what, value in second.asked[:-1]} == {("deploying/turn", (0, True, "a test", since))}
    assert second.asked[-1] == ("deploying/turn", [0, False])


async def test_every_cell_knows_which_change_others_wait_for() -> None:
    async with cells() as supervisor:
        first, second = await supervisor.start(0), await supervisor.start(1)
        is_noted, goes_on = asyncio.Event(), asyncio.Event()

        async def hold_up() -> None:
            is_noted.set()
            await goes_on.wait()

        assert [cell.deployer.work() for cell in (first, second)] == [None, None]
        supervisor.notes.is_noted = hold_up
        before = datetime.now(UTC).replace(microsecond=0)
        changing = asyncio.create_task(first.deployer.change(ROLLBACK))
        await is_noted.wait()
        waiting = asyncio.create_task(second.deployer.change(Deploy(model="flow", version="1", is_incompatible_allowed=True)))
        for cell in (first, second):
            work = cell.deployer.work()
            assert work is not None
            assert work["change"] == "the rollback of 'flow'"
            assert before <= datetime.fromisoformat(work["since"]) <= datetime.now(UTC)
        goes_on.set()
        await changing
        await waiting
        assert [cell.deployer.work() for cell in (first, second)] == [None, None]


async def test_of_two_who_write_at_once_the_second_is_refused() -> None:
    async with cells() as supervisor:
        await supervisor.start(0)
        keep = record_writer(supervisor.notes, "shop")
        await keep(DeploymentState(2).to_json())
        with pytest.raises(ConflictError, match="another process has deployed something meanwhile, and nothing has changed"):
            await keep(DeploymentState(2).to_json())
