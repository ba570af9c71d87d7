"""Which tests need other processes, a browser, Redis, a second host, trained weights or much time: they have the mark `real`
and run in `make test-real`.

`make test` runs all others. The mark is set here, from what a test and its fixtures use, so nobody has to think of it:

* all tests in `FOLDERS`;
* a test that names one of `STARTERS` or `dyorc.testing.serving`, or whose fixtures do, or a function or class of its module
  that it uses; outside `unit/` also `subprocess`, since a process of a unit test is a command that ends at once;
* an example of a test whose parameter is one of `PARAMETERS`.

A test that takes long for another reason says `pytest.mark.real` itself. A starter that checks it with `require_mark` fails a
test without the mark.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from dyorc.testing import serving

_TESTS = Path(__file__).parent
FOLDERS = ("chaos", "compose", "e2e", "integration/chart", "integration/planner", "integration/page", "power_cuts", "storm")
STARTERS = frozenset(
    {
        "EXAMPLES",  # captures all models
        "ForkClient",  # forks replicas from a process
        "RedisServer",
        "ServerProcess",
        "asgi_server",
        "chromium",
        "contender",  # a server that wants the lead
        "own_server",
        "peer_processes",
        "ray_nodes",
        "redis_server",
        "spawn",  # a replica's process
        "spawn_and_wait",
        "spawn_on",
        "start_process",
        "two_hosts",
    }
)
_STARTERS_OUTSIDE_UNIT = STARTERS | {"subprocess"}
PARAMETERS = frozenset({"asyncio", "redis"})
_PARTS_OF_FOLDERS = [tuple(folder.split("/")) for folder in FOLDERS]

_current: list[pytest.Item] = []
"""The test that runs in this process, or none."""


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests."""
    for item in items:
        if _is_real(item):
            item.add_marker(pytest.mark.real)


def require_mark(starter: str) -> None:
    """Fails the running test if it does not have the mark. Outside a test there is nothing to check."""
    if _current and _current[0].get_closest_marker("real") is None:
        pytest.fail(f"{_current[0].nodeid} starts {starter}, expected the mark `real` (tests/real.py)", pytrace=False)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remembers which test runs; its fixtures are set up after this."""
    _current[:] = [item]


def pytest_runtest_teardown() -> None:
    """Forgets the test."""
    _current.clear()


def _is_real(item: pytest.Item) -> bool:
    parts = item.path.relative_to(_TESTS).parts
    if any(parts[: len(folder)] == folder for folder in _PARTS_OF_FOLDERS):
        return True
    if not isinstance(item, pytest.Function):
        return False
    if hasattr(item, "callspec") and any(
        isinstance(value, str) and value in PARAMETERS for value in item.callspec.params.values()
    ):
        return True
    starters = STARTERS if parts[0] == "unit" else _STARTERS_OUTSIDE_UNIT
    return any(_names_one_of(starters, function) for function in _functions_of(item))


def _functions_of(item: pytest.Function) -> Iterator[Any]:
    """Yields the test and its fixtures."""
    yield item.function
    for definitions in item._fixtureinfo.name2fixturedefs.values():  # pyright: ignore[reportPrivateUsage]
        for definition in definitions:
            yield definition.func


@functools.cache
def _names_one_of(starters: frozenset[str], function: Any) -> bool:
    """Whether a function, or what it names of its own module, names a starter."""
    function = getattr(function, "__func__", function)  # of a fixture in a class
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return False
    seen, left = set[Any](), [function]
    while left:
        function = left.pop()
        if function in seen:
            continue
        seen.add(function)
        names = set(_names_in(function.__code__))
        if not starters.isdisjoint(names):
            return True
        for value in map(function.__globals__.get, names):
            if value is serving:
                return True
            if getattr(value, "__module__", None) == function.__module__:
                left += _functions_in(value)
    return False


def _functions_in(value: Any) -> Iterator[FunctionType]:
    """Yields a function, or the methods of a class."""
    for member in vars(value).values() if isinstance(value, type) else [value]:
        wrapped = getattr(member, "__wrapped__", member)
        if isinstance(wrapped, FunctionType):
            yield wrapped


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
