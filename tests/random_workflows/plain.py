"""Plain Python's answer: what `dyorc` means where nothing is guessed, batched, or done later.

A case's source is executed with this module in the place of `dyorc`. A call computes at once, on a batch of one; a decision just
computes; effects go to a list. There is no code of DyOrc's in here, so that both cannot make the same mistake.
"""

import inspect
import types
import typing
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any

import numpy as np

from tests.random_workflows.cases import Case, Failure, Outcome, Value, load, source_of

MAX_CALLS = 400
"""Of one request; a workflow that makes more is of no use here."""


class DyOrcError(Exception):
    """What a workflow may catch."""


class ProgramError(DyOrcError):
    """A program raised."""

    def __init__(self, program: str, error_type: str, message: str) -> None:
        super().__init__(f"program {program!r} failed: {error_type}: {message}")
        self.error_type = error_type
        self.message = message


class WorkflowError(DyOrcError):
    """A workflow's own code raised, or its decision."""


class Unusable(BaseException):
    """The case has no one meaning, or is too long."""


class Ref:
    """A value that was computed, or the error instead."""

    def __init__(self, value: Any, error: DyOrcError | None = None) -> None:
        self.value = value
        self.error = error

    def __await__(self) -> Generator[Any, Any, Any]:
        if self.error is not None:
            raise self.error
        return self.value
        yield

    def __getitem__(self, index: Any) -> "Ref":
        return self if self.error is not None else Ref(self.value[index])

    def __iter__(self) -> Iterator["Ref"]:
        return iter([self[at] for at in range(2)])


counts: Counter[str] = Counter()


def program(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Stands for `dyorc.program`: calls compute at once."""
    if function is None:
        return lambda function: program(function, **options)
    signature = inspect.signature(function)
    hints = typing.get_type_hints(function)

    def call(*args: Any, **kwargs: Any) -> Ref:
        counts["calls"] += 1
        if counts["calls"] > MAX_CALLS:
            raise Unusable("too many calls")
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        errors = {arg.error for arg in bound.arguments.values() if isinstance(arg, Ref) and arg.error is not None}
        if len({str(error) for error in errors}) > 1:
            raise Unusable("which of the inputs' errors comes first is left open")
        if errors:
            return Ref(None, errors.pop())
        batch = {name: _batch_of(arg, hints[name], options) for name, arg in bound.arguments.items()}
        try:
            return Ref(_rows_of(function(**batch), options))
        except Exception as error:
            return Ref(None, ProgramError(function.__name__, type(error).__name__, str(error)))

    return call


def _batch_of(argument: Any, hint: Any, options: dict[str, Any]) -> Any:
    if hint in (bool, int, float, str):
        return hint(argument)
    array = np.array(argument.value if isinstance(argument, Ref) else argument, order="C")
    batch = array[None] if options.get("batched", True) else array
    if not isinstance(batch, hint):
        raise Unusable(f"{argument!r} is not a {hint}")
    return batch


def _rows_of(result: Any, options: dict[str, Any]) -> Any:
    if isinstance(result, dict):
        return {name: _rows_of(each, options) for name, each in result.items()}
    array = np.array(result[0] if options.get("batched", True) else result)
    array.flags.writeable = False
    return array[()] if array.ndim == 0 else array


def workflow(function: Callable[..., Coroutine[Any, Any, Any]] | None = None, *, name: str = "") -> Any:
    """Stands for `dyorc.workflow`: a call runs to its end at once."""
    if function is None:
        return lambda function: workflow(function, name=name)
    hints = typing.get_type_hints(function)

    def call(*args: Any, **kwargs: Any) -> Ref:
        counts["calls"] += 1
        kwargs = {name: float(value) if hints[name] is float else value for name, value in kwargs.items()}
        try:
            returned = _run(function(*args, **kwargs))
            if isinstance(returned, tuple):
                return Ref(tuple([_run(_value_of(each)) for each in returned]))
            if not isinstance(returned, Ref | np.ndarray):
                raise Unusable(f"it returned {returned!r}")
            return Ref(_run(_value_of(returned)))
        except DyOrcError as error:
            return Ref(None, error)
        except (NameError, SyntaxError, TypeError) as error:  # of a case that was cut to pieces
            raise Unusable from error
        except Exception as error:
            text = f"workflow {name or function.__name__!r} raised {type(error).__name__}: {error}"
            return Ref(None, WorkflowError(text))

    return call


async def _value_of(returned: Any) -> Any:
    return await returned if isinstance(returned, Ref) else returned


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("nothing waits in plain Python")


async def choose(ref: Ref, key: Callable[[Any], Any] = lambda value: value, *, likely: Any = None) -> Any:
    """Stands for `dyorc.choose`: just computes."""
    counts["decisions"] += 1
    value = await ref
    try:
        return key(value)
    except Exception as error:
        raise WorkflowError(f"the predicate of a decision raised {type(error).__name__}: {error}") from None


when = choose


async def gather(*refs: Ref) -> list[Any]:
    """Stands for `dyorc.gather`: awaits in order."""
    return [await ref for ref in refs]


def pad(**buckets: Any) -> None:
    """Stands for `dyorc.pad`: elementwise programs need none."""


_DYORC = types.SimpleNamespace(
    DyOrcError=DyOrcError, ProgramError=ProgramError, choose=choose, gather=gather, pad=pad, program=program, when=when,
    workflow=workflow,
)  # fmt: skip


_effects: list[str] = []
_programs = load("programs", source_of("programs"), {"dyorc": _DYORC, "effects": types.SimpleNamespace(note=_effects.extend)})
KEYS: tuple[Any, ...] = _programs.KEYS
"""What `choose` chooses from, as the programs' file lists it."""


def evaluate(case: Case) -> Outcome:
    """Runs a case's requests one after another.

    Raises:
        Unusable: If the case does not mean anything.
    """
    try:
        flow = getattr(load(case.name, case.source, {"dyorc": _DYORC, "programs": _programs}), case.name)
    except (AttributeError, NameError, SyntaxError) as error:  # of a case that was cut to pieces
        raise Unusable from error
    outcome = Outcome()
    _effects.clear()
    for request in case.requests:
        counts.clear()
        ref = flow(Ref(np.array(request.x)), Ref(np.int64(request.ticket)), **request.statics)
        outcome.answers[request.ticket] = Value.of(ref.value) if ref.error is None else Failure.of(ref.error)
        outcome.counts.update(counts)
    outcome.effects.update(_effects)
    return outcome
