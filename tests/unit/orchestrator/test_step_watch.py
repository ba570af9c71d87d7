"""Workflow code that computes, sleeps or never returns: it is interrupted and named, and no other request fails."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float
from structlog.testing import capture_logs

import dyorc
from dyorc.config import EngineConfig
from dyorc.engine.engine_context import Host
from dyorc.engine.model.journal import StepInterrupted
from dyorc.errors import ProgramError, WorkflowError
from dyorc.orchestrator import step_watch
from dyorc.orchestrator.step_watch import StepWatch
from tests.deadlines import wait_until
from tests.unit.engine import driver
from tests.unit.engine.driver import World

END_S = 60.0
"""A step ends by itself after this time, so that a test whose watch fails does not hang."""


@dyorc.program(max_batch_size=8)
def add_one(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
    return x + 1


def spin() -> None:
    end_s = time.monotonic() + END_S
    while time.monotonic() < end_s:
        pass


@dyorc.workflow
async def spins(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
    y = add_one(x)
    spin()
    return y


@dyorc.workflow
async def decides_for_ever(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
    if await dyorc.when(add_one(x), lambda value: spin() is None):
        return x
    return add_one(x)


@dyorc.workflow
async def catches(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
    with contextlib.suppress(Exception):
        spin()
    return add_one(x)


@dyorc.workflow
async def increment(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
    return add_one(x)


def line_of(function: Callable[..., object], text: str) -> int:
    """Returns the number of a workflow's line in this file."""
    lines = Path(__file__).read_text().splitlines()
    start = function.__code__.co_firstlineno
    return next(number for number, line in enumerate(lines, 1) if number >= start and text in line)


@pytest.fixture(autouse=True)
def calling_in_our_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled engine is on no stack: below the users' code its caller is found, which in a server is the orchestrator."""
    monkeypatch.setattr(step_watch, "_OWN", (step_watch._OWN, driver.__file__))


@pytest.fixture
def watch() -> Iterator[StepWatch]:
    with StepWatch(warn_after_s=0.02, limit_s=0.2) as watch:
        yield watch
    assert "dyorc-step-watch" not in {thread.name for thread in threading.enumerate()}


@contextlib.contextmanager
def catch_unraisable() -> Generator[list[type[BaseException]]]:
    """Collects the classes of exceptions that no code could catch."""
    swallowed: list[type[BaseException]] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: swallowed.append(unraisable.exc_type)
    try:
        yield swallowed
    finally:
        sys.unraisablehook = hook


def world_with(watch: StepWatch) -> World:
    world = World([add_one], EngineConfig(), host=Host(step_monitor=watch))
    world.join(add_one)
    return world


@pytest.mark.parametrize(("workflow", "text"), [(spins, "spin()"), (decides_for_ever, "spin()"), (catches, "spin()")])
def test_a_step_without_end_is_interrupted_and_its_place_named(watch: StepWatch, workflow: dyorc.Workflow, text: str) -> None:
    world = world_with(watch)
    stuck = world.submit(workflow, 0.0)
    while world.in_flight:
        world.finish()
    error = world.answers[stuck]
    assert isinstance(error, WorkflowError)
    assert f"{__file__}:{line_of(workflow.function, text)}" in str(error)
    assert "0.2 s" in str(error)
    assert "program" in str(error)
    watch._limit_ns = int(END_S * 1e9)  # pyright: ignore[reportPrivateUsage]  # a pause of this process is no mistake of the next
    other = world.submit(increment, 1.0)
    while world.in_flight:
        world.finish()
    assert world.answers[other] == [2.0]


def test_the_function_that_computes_a_cost_is_interrupted_like_a_step(watch: StepWatch) -> None:
    """Whether its call is ready at once, in a step, or later."""

    @dyorc.program(max_batch_size=8, max_batch_cost=10, cost=lambda x: spin() or 1)
    def costly(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
        return x

    @dyorc.workflow
    async def at_once(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
        return costly(x)

    @dyorc.workflow
    async def later(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
        return costly(add_one(x))

    world = World([add_one, costly], EngineConfig(), host=Host(step_monitor=watch))
    world.join(add_one)
    world.join(costly)
    for workflow in (at_once, later):
        stuck = world.submit(workflow, 0.0)
        world.finish_all()
        error = world.answers[stuck]
        assert isinstance(error, ProgramError)
        assert "cost of a call ran for more than 0.2 s" in str(error)
        assert f"{__file__}:" in str(error)
    assert not watch.is_measuring


def test_what_runs_when_a_workflow_is_closed_is_interrupted_like_a_step(watch: StepWatch) -> None:
    @dyorc.workflow
    async def ends_never(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
        try:
            return np.asarray(await add_one(x))
        finally:
            spin()

    world = world_with(watch)
    stuck = world.submit(ends_never, 0.0)
    began_s = time.monotonic()
    world.cancel(stuck)
    assert time.monotonic() - began_s < END_S / 2, "closing it was not interrupted"
    assert not watch.is_measuring


def test_a_slow_step_is_logged_once_with_its_place() -> None:
    with StepWatch(warn_after_s=0.02, limit_s=END_S) as watch, capture_logs() as logs:

        @dyorc.workflow
        async def naps(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
            wait_until(lambda: watch._place, "the watch has seen it")  # pyright: ignore[reportPrivateUsage]
            return add_one(x)

        world = world_with(watch)
        for _ in range(2):
            world.submit(naps, 0.0)
    while world.in_flight:
        world.finish()
    (slow,) = [entry for entry in logs if entry["event"] == "slow_step"]
    assert slow["workflow"].endswith("naps")
    assert slow["place"].startswith(f"{__file__}:{line_of(naps.function, 'wait_until')} in naps")
    assert slow["took_s"] >= 0.02
    assert not [answer for answer in world.answers.values() if isinstance(answer, Exception)]


_WAITS = f"""
def import_lazily():
    end_s = time.monotonic() + {END_S}
    while not watch._place and time.monotonic() < end_s:
        pass
    time.sleep(0.2)
"""


def test_while_our_own_code_runs_the_line_of_the_workflow_is_logged_and_nothing_interrupted() -> None:
    """Nor is what our own code calls of Python, such as an import."""
    with StepWatch(warn_after_s=0.02, limit_s=0.04) as watch, capture_logs() as logs:
        names: dict[str, Any] = {"__name__": "dyorc", "watch": watch, "time": time}
        exec(compile(_WAITS, "<frozen importlib._bootstrap>", "exec"), names)
        exec(compile("def call(): import_lazily()", f"{Path(dyorc.__file__).parent}/authoring/program.py", "exec"), names)

        @dyorc.workflow
        async def calls(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
            names["call"]()
            return add_one(x)

        world = world_with(watch)
        request = world.submit(calls, 1.0)
    while world.in_flight:
        world.finish()
    (slow,) = [entry for entry in logs if entry["event"] == "slow_step"]
    assert slow["place"] == f"{__file__}:{line_of(calls.function, 'names[')} in calls"
    assert world.answers[request] == [2.0]


def test_a_slow_step_that_nobody_saw_is_logged_without_an_empty_place() -> None:
    watch = StepWatch(warn_after_s=0.02, limit_s=END_S)  # its thread does not run
    with capture_logs() as logs:
        watch.begin("naps")
        watch._started_ns -= 10**9  # pyright: ignore[reportPrivateUsage]
        watch.end()
    (slow,) = logs
    assert (slow["event"], slow["workflow"], slow["place"][:8]) == ("slow_step", "naps", "unknown:")


def test_a_step_whose_finalizer_swallows_the_interruption_is_interrupted_again(watch: StepWatch) -> None:
    class Spins:
        def __del__(self) -> None:
            spin()

    @dyorc.workflow
    async def drops(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
        Spins()
        spin()
        return add_one(x)

    world = world_with(watch)
    with catch_unraisable() as swallowed:
        stuck = world.submit(drops, 0.0)
        while world.in_flight:
            world.finish()
    assert swallowed == [StepInterrupted], "the finalizer was interrupted first"
    assert isinstance(world.answers[stuck], WorkflowError)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a callback of the garbage collector
def test_an_exception_that_comes_too_late_hits_nobody() -> None:
    """Steps that end just as they are interrupted: each ends as a success or by its limit, and none outside of a step."""
    with StepWatch(warn_after_s=10, limit_s=0.01) as watch:
        world = world_with(watch)
        outcomes: set[bool] = set()

        @dyorc.workflow
        async def about_as_long(x: Float[np.ndarray, ""], seconds: float) -> Float[np.ndarray, ""]:
            end_s = time.monotonic() + seconds
            while time.monotonic() < end_s:
                pass
            return add_one(x)

        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for at in range(100):
                request = world.submit(about_as_long, 0.0, 0.008 + at % 10 * 0.001)
                while world.in_flight:
                    world.finish()
                outcomes.add(isinstance(world.answers[request], WorkflowError))
        finally:
            sys.setswitchinterval(interval_s)
        assert True in outcomes, "no step was interrupted"


def test_a_step_in_which_the_engine_failed_interrupts_nothing_later() -> None:
    with StepWatch(warn_after_s=10, limit_s=0.02) as watch:
        watch.begin("spins")
        watch.forget()
        end_s = time.monotonic() + 0.3
        while time.monotonic() < end_s:
            pass
