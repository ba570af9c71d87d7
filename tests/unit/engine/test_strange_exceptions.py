"""Exceptions that misbehave in any way end their request, and nothing else."""

from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.errors import ProgramError, WorkflowError

V = Float[np.ndarray, " n"]
X = np.ones(2, np.float32)


class Nameless(type):
    @property
    def __name__(cls) -> str:
        raise RuntimeError("no name")


class Closed(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError("no attributes")


class Classless(Exception):
    @property
    def __class__(self) -> type:
        raise RuntimeError("no class")


class Empty(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


def _raise(number: int) -> None:
    kinds: list[Any] = [
        Nameless("Odd", (Exception,), {}),
        Closed("Odd", (Exception,), {}),
        Classless,
        Empty,
        type("A" * 9999, (Exception,), {}),
    ]
    error = kinds[number]("x")
    raise error


@pytest.mark.parametrize("number", range(5))
def test_a_workflow_may_raise_anything(number: int) -> None:
    @dyorc.workflow
    async def flow(x: V) -> V:
        _raise(number)
        return x

    @dyorc.workflow
    async def deciding(x: V) -> V:
        await dyorc.when(x, lambda value: _raise(number))
        return x

    for workflow in (flow, deciding):
        with pytest.raises(WorkflowError, match=r"raised \w+.*test_strange_exceptions\.py, line \d+") as raised:
            dyorc.run(workflow, X)
        assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("number", range(5))
def test_a_program_may_raise_anything(number: int) -> None:
    @dyorc.program(batched=False)
    def odd(x: V) -> V:
        _raise(number)
        return x

    with pytest.raises(ProgramError, match="program 'odd' failed"):
        dyorc.run(odd, X)


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
def test_what_a_workflow_returns_may_raise_anything_when_it_is_read(ending: type[BaseException]) -> None:
    class Ending:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise ending("as an array")

    @dyorc.workflow
    async def flow(x: V) -> V:
        return Ending()  # pyright: ignore[reportReturnType]

    with pytest.raises(WorkflowError, match="as an array"):
        dyorc.run(flow, X)
