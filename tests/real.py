"""Which tests need a real Ray, browser, Redis or second host, or minutes: they have the mark `real` and run in `make test-real`.

`make test` runs all others. The mark is set here, from what a test and its fixtures use, so nobody has to think of it:

* all tests in `FOLDERS`;
* a test that names one of `STARTERS` in its own code or in the code of one of its fixtures;
* an example of a test with the parameter `redis`.

A test that takes long for another reason says `pytest.mark.real` itself. A starter that runs in a test without the mark fails it.
"""

from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

_TESTS = Path(__file__).parent
FOLDERS = ("chaos", "compose", "e2e")
STARTERS = frozenset({"RedisServer", "chromium", "ray_nodes", "redis_server", "two_hosts"})
_PARAMETER = "redis"

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
    if item.path.relative_to(_TESTS).parts[0] in FOLDERS:
        return True
    if not isinstance(item, pytest.Function):
        return False
    if hasattr(item, "callspec") and any(
        isinstance(value, str) and value == _PARAMETER for value in item.callspec.params.values()
    ):
        return True
    return any(not STARTERS.isdisjoint(_names_in(code)) for code in _codes_of(item))


def _codes_of(item: pytest.Function) -> Iterator[CodeType]:
    definitions = item._fixtureinfo.name2fixturedefs  # pyright: ignore[reportPrivateUsage]
    for function in [item.function, *(definition.func for several in definitions.values() for definition in several)]:
        code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
        if isinstance(code, CodeType):
            yield code


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
