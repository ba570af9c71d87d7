"""What a workflow may await besides a Ref: `gather`, and decisions, which are the places where DyOrc may guess."""

import sys
from collections.abc import Callable, Generator, Hashable
from contextvars import ContextVar
from enum import Enum
from pathlib import PurePath
from types import CellType, CodeType, FunctionType
from typing import Any, Final
from weakref import finalize
from weakref import ref as ref_to

from dyorc.authoring.ref import Ref, refuse_use
from dyorc.authoring.stream import Stream
from dyorc.errors import WorkflowError


class DecisionKind(Enum):
    WHEN = "when"
    CHOOSE = "choose"


_WHEN: Final = DecisionKind.WHEN


class DecisionSite:
    """A place in a workflow's code with a decision; one object per place, for all requests.

    It does not keep the code: what is learned of a place is dropped once the code is gone with its version.
    """

    __slots__ = ("_code", "_text", "line")

    def __init__(self, code: CodeType, line: int) -> None:
        self._code = ref_to(code)
        self.line = line
        self._text = f"{PurePath(code.co_filename).name}, line {line}"

    @property
    def code(self) -> CodeType | None:
        """The code; None once it is gone, and nothing can come here again."""
        return self._code()

    def __str__(self) -> str:
        """Returns the place as clients see it: without the server's folders."""
        return self._text


def _await_decision(decision: "Decision") -> tuple[str, str]:
    return f"{decision!r} was not awaited: it", f"write `await dyorc.{decision.kind.value}(...)`"


@refuse_use(_await_decision)
class Decision:
    """A branch point: a pure function of one value.

    Attributes:
        ref: The value it depends on.
        site: Its place in the workflow's code.
        likely: The outcome the author expects; None if not said.
        is_awaited: Whether the workflow has awaited it. If not, it decides nothing.
    """

    __slots__ = ("function", "is_awaited", "kind", "likely", "ref", "site")

    def __init__(
        self, kind: DecisionKind, ref: Ref, function: Callable[[Any], Any], site: DecisionSite, likely: Hashable = None
    ) -> None:
        if not isinstance(ref, Ref):
            raise TypeError(f"dyorc.{kind.value} looks at a Ref, got {type(ref).__name__}")
        self.kind = kind
        self.ref = ref
        self.function = function
        self.site = site
        self.likely = likely
        self.is_awaited = False

    def __await__(self) -> Generator["Decision", Any, Any]:
        self.is_awaited = True
        return (yield self)

    def __repr__(self) -> str:
        return f"dyorc.{self.kind.value} ({self.site})"

    def freeze(self) -> None:
        """Freezes the function's variables, for a run that may go on before the decision is taken."""
        self.function = freeze(self.function)

    def decide(self, value: Any) -> Hashable:
        """Returns the outcome for a value.

        Raises:
            WorkflowError: If the function does not return a bool (for `when`) or something hashable (for `choose`).
        """
        outcome = self.function(value)
        if type(outcome) is not bool:
            outcome = _as_python(outcome)
        if self.kind is _WHEN and not isinstance(outcome, bool):
            raise WorkflowError(f"dyorc.when: the predicate returned {type(outcome).__name__} {outcome!r}, expected a bool")
        try:
            hash(outcome)
        except TypeError:
            raise WorkflowError(f"dyorc.choose: the key {type(outcome).__name__} {outcome!r} is not hashable") from None
        return outcome


def _as_python(outcome: Any) -> Any:
    """Returns the Python number of an array, tensor or scalar of rank 0; anything else as it is."""
    return outcome.item() if hasattr(outcome, "item") and getattr(outcome, "ndim", None) == 0 else outcome


decisions_made: ContextVar[list[Decision] | None] = ContextVar("dyorc_decisions_made", default=None)
"""Collects the decisions of a run that is checked for unawaited ones; None in all other runs."""


def when(ref: Ref, predicate: Callable[[Any], Any] = bool, *, likely: bool | None = None) -> Decision:
    """Asks a yes-or-no question about a value: ``if await dyorc.when(logits, is_confident): ...``.

    Args:
        ref: The value to decide by. It may not exist yet.
        predicate: A pure function from the value (NumPy) to a bool.
        likely: The usual outcome, used until DyOrc has seen enough requests.
    """
    likely = None if likely is None else bool(likely)  # here, where an error is the workflow's
    return _record(Decision(_WHEN, ref, predicate, _site(), likely))


def choose(ref: Ref, key: Callable[[Any], Any] = lambda value: value, *, likely: Hashable = None) -> Decision:
    """Chooses among several outcomes: ``match await dyorc.choose(scores, best): ...``.

    Args:
        ref: The value to decide by. It may not exist yet.
        key: A pure function from the value (NumPy) to something small and hashable.
        likely: The usual outcome, used until DyOrc has seen enough requests.

    Raises:
        TypeError: If `likely` is not hashable.
    """
    likely = _as_python(likely)
    hash(likely)
    return _record(Decision(DecisionKind.CHOOSE, ref, key, _site(), likely))


def _record(decision: Decision) -> Decision:
    if (made := decisions_made.get()) is not None:
        made.append(decision)
    return decision


@refuse_use(lambda gathered: (f"{gathered!r} was not awaited: it", "write `a, b = await dyorc.gather(...)`"))
class Gather:
    """Several values at once."""

    __slots__ = ("refs",)

    def __init__(self, refs: tuple[Ref, ...]) -> None:
        self.refs = refs

    def __await__(self) -> Generator["Gather", Any, list[Any]]:
        return (yield self)

    def __repr__(self) -> str:
        return f"dyorc.gather of {len(self.refs)}"


def gather(*refs: Ref) -> Gather:
    """Waits for all of `refs`: ``texts = await dyorc.gather(*lines)``.

    Returns their values in the order of the arguments. If some failed, raises the first failure in that order.
    """
    for ref in refs:
        if not isinstance(ref, Ref):
            raise TypeError(f"dyorc.gather takes Refs, got {_instead_of(ref)}")
    return Gather(refs)


def _instead_of(value: object) -> str:
    """Returns what was given to `gather` in place of a Ref, and what helps."""
    if isinstance(value, Stream):
        return "a Stream; wait for all of its parts by `await dyorc.collect(stream)`"
    return f"{type(value).__name__}; pass a list as dyorc.gather(*list)"


_sites: dict[tuple[int, int], DecisionSite] = {}


def _site() -> DecisionSite:
    """Returns the site of the caller's caller."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage] (three times as fast as the inspect module's way)
    code, line = frame.f_code, frame.f_lineno
    key = (id(code), line)  # code objects compare by their content, which is slow
    site = _sites.get(key)
    if site is None:
        site = _sites[key] = DecisionSite(code, line)
        finalize(code, _sites.pop, key, None).atexit = False  # another code may get the id
    return site


def freeze(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a function that does what this one would do now, even if the variables that it reads change later.

    A predicate like ``lambda score: score > limits[turn]`` reads variables of the workflow. Its decision is taken when the value
    is there; until then the workflow may go on under a guess and change these variables.

    Variables keep their values; lists, dicts and sets are copied, and so are the variables that functions among the values read.
    Other objects are not copied.

    Cost: none for a function that reads no outer variables.
    """
    if type(function) is not FunctionType or not function.__closure__:
        return function
    return _freeze(function, {})


def _freeze(function: FunctionType, copies: dict[int, FunctionType]) -> FunctionType:
    if (copy := copies.get(id(function))) is not None:
        return copy
    closure = function.__closure__ or ()
    cells = tuple([CellType() for _ in closure])
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__ = function.__kwdefaults__
    copies[id(function)] = copy
    for old, new in zip(closure, cells, strict=True):
        try:
            value = old.cell_contents
        except ValueError:  # the variable has no value yet
            continue
        kind = type(value)
        if kind is FunctionType and value.__closure__:
            value = _freeze(value, copies)
        elif kind is list or kind is dict or kind is set:
            value = value.copy()
        new.cell_contents = value
    return copy
