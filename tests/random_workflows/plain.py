"""Plain Python's answer: what `dyorc` means where nothing is guessed, batched, or done later.

A case's source is executed with this module in the place of `dyorc`. A call computes at once, on a batch of one; a decision just
computes; effects go to a list. A stream is a list of parts that are all computed at once, and perhaps the error after them; a
resident is copied for each call that takes it. There is no code of DyOrc's in here, so that both cannot make the same mistake.
"""

import copy
import inspect
import types
import typing
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.random_workflows.cases import Case, Failure, Outcome, Parts, Value, load, source_of

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


@dataclass(eq=False)
class Stream:
    """Values of all parts, and the error behind them."""

    parts: list[Any] = field(default_factory=list[Any])
    error: DyOrcError | None = None

    async def __aiter__(self) -> AsyncIterator[Ref]:
        for part in self.parts:
            yield Ref(part)
        if self.error is not None:
            raise self.error

    async def arrays(self) -> AsyncIterator[Any]:
        """Yields the parts as a program reads them."""
        async for part in self:
            yield np.array(part.value)


class Resident:
    """Stands for `dyorc.Resident`: annotates objects that are passed as they are."""

    def __class_getitem__(cls, item: Any) -> type:
        return cls


class Consumed:
    """Stands for `dyorc.Consumed`."""


counts: Counter[str] = Counter()


def program(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Stands for `dyorc.program`: calls compute at once."""
    if function is None:
        return lambda function: program(function, **options)
    signature = inspect.signature(function)
    hints = typing.get_type_hints(function)
    is_yielding = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)

    def call(*args: Any, **kwargs: Any) -> Ref | Stream:
        counts["calls"] += 1
        if counts["calls"] > MAX_CALLS:
            raise Unusable("too many calls")
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        errors = {arg.error for arg in bound.arguments.values() if isinstance(arg, Ref) and arg.error is not None}
        if len({str(error) for error in errors}) > 1:
            raise Unusable("which of the inputs' errors comes first is left open")
        if errors:
            return Stream(error=errors.pop()) if is_yielding else Ref(None, errors.pop())
        batch = {name: _batch_of(arg, hints[name], options) for name, arg in bound.arguments.items()}
        try:
            result = function(**batch)
            if is_yielding:
                return _stream_of(function.__name__, result, bound.arguments)
            result = _run(result) if inspect.iscoroutine(result) else result
            return Ref(_rows_of(result, hints["return"], options))
        except Exception as error:
            return Ref(None, _failure(function.__name__, error, bound.arguments))

    return call


def _failure(name: str, error: Exception, arguments: Mapping[str, Any]) -> DyOrcError:
    """Returns what a call fails with. An error of a stream that it reads stays that of what failed first."""
    for stream, argument in arguments.items():
        if isinstance(argument, Stream) and argument.error is error:
            continued = type(argument.error).__new__(type(argument.error))
            vars(continued).update(vars(argument.error))
            continued.args = (f"{error}; it reached program {name!r} through its stream {stream!r}",)
            return continued
    return ProgramError(name, type(error).__name__, str(error))


def _stream_of(name: str, generator: Any, arguments: Mapping[str, Any]) -> Stream:
    """Returns all that a program's generator yields."""
    stream = Stream()
    try:
        for part in generator if inspect.isgenerator(generator) else _each_of(generator):
            stream.parts.append(_read_only(np.array(part)))
    except Exception as error:
        stream.error = _failure(name, error, arguments)
    return stream


def _each_of(generator: Any) -> Iterator[Any]:
    end = object()
    while (item := _run(anext(generator, end))) is not end:
        yield item


def _batch_of(argument: Any, hint: Any, options: dict[str, Any]) -> Any:
    if hint in (bool, int, float, str):
        return hint(argument)
    if hint is Resident:
        return [copy.deepcopy(argument.value)]
    if isinstance(argument, Stream):
        return argument.arrays()
    array = np.array(argument.value if isinstance(argument, Ref) else argument, order="C")
    batch = array[None] if options.get("batched", True) else array
    if not isinstance(batch, hint):
        raise Unusable(f"{argument!r} is not a {hint}")
    return batch


def _rows_of(result: Any, hint: Any, options: dict[str, Any]) -> Any:
    if isinstance(result, dict):
        return {name: _rows_of(each, None, options) for name, each in result.items()}
    if isinstance(result, tuple):
        return tuple([_rows_of(each, kind, options) for each, kind in zip(result, typing.get_args(hint), strict=True)])
    if hint is Resident:
        return result[0]
    return _read_only(np.array(result[0] if options.get("batched", True) else result))


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array[()] if array.ndim == 0 else array


def workflow(function: Callable[..., Any] | None = None, *, name: str = "") -> Any:
    """Stands for `dyorc.workflow`: a call runs to its end at once."""
    if function is None:
        return lambda function: workflow(function, name=name)
    hints = typing.get_type_hints(function)

    def call(*args: Any, **kwargs: Any) -> Ref | Stream:
        counts["calls"] += 1
        kwargs = {name: float(value) if hints[name] is float else value for name, value in kwargs.items()}
        running = function(*args, **kwargs)
        stream = Stream()
        try:
            if inspect.isasyncgen(running):
                _run(_read_all(running, stream))
                return stream
            return Ref(_answer_of(_run(running)))
        except DyOrcError as error:
            failure = error
        except (NameError, SyntaxError, TypeError) as error:  # of a case that was cut to pieces
            raise Unusable from error
        except Exception as error:
            failure = WorkflowError(f"workflow {name or function.__name__!r} raised {type(error).__name__}: {error}")
        if not inspect.isasyncgen(running):
            return Ref(None, failure)
        stream.error = stream.error or failure
        return stream

    return call


async def _read_all(generator: AsyncIterator[Any], stream: Stream) -> None:
    """Reads what a workflow yields. Behind a part that failed it goes on, but may have no effect: DyOrc may do either."""
    try:
        async for part in generator:
            if stream.error is None:
                try:
                    stream.parts.append(_answer_of(part))
                except DyOrcError as error:
                    stream.error = error
                    _behind_failed_parts.append(stream)
    finally:
        if stream in _behind_failed_parts:
            _behind_failed_parts.remove(stream)


def _answer_of(returned: Any) -> Any:
    """Returns the value of what a workflow returned, or yielded."""
    if isinstance(returned, tuple):
        return tuple([_run(_value_of(each)) for each in returned])
    if not isinstance(returned, Ref | np.ndarray):
        raise Unusable(f"it returned {returned!r}")
    return _read_only(np.array(_run(_value_of(returned))))


async def _value_of(returned: Any) -> Any:
    return await returned if isinstance(returned, Ref) else returned


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("nothing waits in plain Python")


async def choose(ref: Ref | list[Ref], key: Callable[[Any], Any] = lambda value: value, *, likely: Any = None) -> Any:
    """Does in place of `dyorc.choose` what that means: just computes."""
    counts["decisions"] += 1
    value = [await each for each in ref] if isinstance(ref, list) else await ref
    try:
        return [key(each) for each in value] if isinstance(ref, list) else key(value)
    except Exception as error:
        raise WorkflowError(f"the predicate of a decision raised {type(error).__name__}: {error}") from None


when = choose


async def gather(*refs: Ref) -> list[Any]:
    """Stands for `dyorc.gather`: awaits in order."""
    return [await ref for ref in refs]


async def collect(stream: Stream) -> list[Any]:
    """Stands for `dyorc.collect`."""
    return [await part async for part in stream]


async def pause() -> None:
    """Waits for nothing."""


def pad(**buckets: Any) -> None:
    """Stands for `dyorc.pad`: elementwise programs need none."""


_DYORC = types.SimpleNamespace(
    Consumed=Consumed, DyOrcError=DyOrcError, ProgramError=ProgramError, Resident=Resident, choose=choose, collect=collect,
    gather=gather, pad=pad, program=program, when=when, workflow=workflow,
)  # fmt: skip


_effects: list[str] = []
_behind_failed_parts: list[Stream] = []
"""What running workflows have yielded, up to a part that failed."""


def _note(lines: list[str]) -> None:
    if _behind_failed_parts:
        raise Unusable("whether effects behind a part that failed happen is left open")
    _effects.extend(lines)


_programs = load("programs", source_of("programs"), {"dyorc": _DYORC, "effects": types.SimpleNamespace(note=_note, pause=pause)})
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
    _behind_failed_parts.clear()
    for request in case.requests:
        counts.clear()
        answer = flow(Ref(np.array(request.x)), Ref(np.int64(request.ticket)), **request.statics)
        failure = None if answer.error is None else Failure.of(answer.error)
        if isinstance(answer, Stream):
            outcome.answers[request.ticket] = Parts(tuple([Value.of(part) for part in answer.parts]), failure)
        else:
            outcome.answers[request.ticket] = failure or Value.of(answer.value)
        outcome.counts.update(counts)
    outcome.effects.update(_effects)
    return outcome
