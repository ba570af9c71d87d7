"""Garbage is collected while nothing runs, and not put off for ever; a program that leaves no cycles needs no collection."""

import asyncio
import gc
import weakref

import numpy as np
import pytest

from dyorc.replica import program_lifecycle
from dyorc.replica.program_lifecycle import Leftovers, free_memory
from dyorc.system import idle_collection
from dyorc.system.idle_collection import IdleCollection
from tests.deadlines import wait_until_async

pytestmark = pytest.mark.anyio


class _Cyclic:
    def __init__(self) -> None:
        self.itself = self


class _Plain:
    """As programs are: with weights, and names of what belongs to others."""

    def __init__(self) -> None:
        self.weights = np.zeros(1000)
        self.library = np
        self.function = np.mean


class _Deep:
    def __init__(self) -> None:
        self.net = _Cyclic()


@pytest.fixture(autouse=True)
def _without_collector(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(idle_collection, "_LOOK_S", 0.001)
    monkeypatch.setattr(program_lifecycle, "_FREED_S", 0.05)
    gc.disable()
    yield
    gc.enable()


def _garbage() -> weakref.ref[_Cyclic]:
    return weakref.ref(_Cyclic())


async def test_it_waits_until_nothing_runs() -> None:
    num_running, num_looks = 1, 0

    def is_idle() -> bool:
        nonlocal num_looks
        num_looks += 1
        return not num_running

    garbage, collection = _garbage(), IdleCollection(is_idle)
    collection.ask()
    await wait_until_async(lambda: num_looks > 100, "it looks")
    assert garbage() is not None
    num_running = 0
    await wait_until_async(lambda: garbage() is None, "it collects")
    num_looks = 0
    await asyncio.sleep(0.01)
    assert num_looks == 0, "it looks for nothing"


async def test_a_moment_without_requests_is_not_idle() -> None:
    looks = [False, *[True] * 19] * 5 + [True]
    garbage, collection = _garbage(), IdleCollection(lambda: looks.pop(0))
    collection.ask()
    await wait_until_async(lambda: garbage() is None, "it collects")
    assert not looks


@pytest.mark.parametrize("reason", ["too late", "too many"])
async def test_it_is_not_put_off_for_ever(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason == "too late":
        monkeypatch.setattr(idle_collection, "_LATEST_S", 0.02)
    garbage, collection = _garbage(), IdleCollection(lambda: False)
    for _ in range(1 if reason == "too late" else 8):
        collection.ask()
    await wait_until_async(lambda: garbage() is None, "it collects")


async def test_a_closed_one_collects_nothing() -> None:
    garbage, collection = _garbage(), IdleCollection(lambda: True)
    collection.ask()
    collection.close()
    await asyncio.sleep(0.1)
    assert garbage() is not None


@pytest.mark.parametrize("kind", [_Cyclic, _Deep])
def test_a_program_that_leaves_cycles_is_collected(kind: type) -> None:
    program = kind()
    leftovers, watched = Leftovers(program), weakref.ref(program)
    net = weakref.ref(getattr(program, "net", program))
    del program
    free_memory(leftovers)
    assert watched() is None
    assert net() is None


def test_a_program_without_cycles_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    program = _Plain()
    leftovers = Leftovers(program)
    del program
    monkeypatch.setattr(gc, "collect", lambda: pytest.fail("it collects"))
    free_memory(leftovers)
    free_memory(Leftovers(_garbage))  # a function has loaded nothing
