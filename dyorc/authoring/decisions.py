"""What a workflow may await besides a Ref: `gather`, and decisions, which are the places where DyOrc may guess."""

import sys
from collections.abc import Callable, Generator, Hashable, Sequence
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


class Outcomes(tuple[Any, ...]):
    """The outcomes of a decision about several values, in their order.

    Its text has few forms, however many values there are: it labels the edges of graphs and metrics.
    """

    __slots__ = ()

    def __str__(self) -> str:
        if not self:
            return "none"
        if not all(outcome == self[0] for outcome in self):
            return "some" if isinstance(self[0], bool) else "several"
        return ("all" if self[0] else "none") if isinstance(self[0], bool) else str(self[0])


@refuse_use(_await_decision)
class Decision:
    """A branch point: a pure function of one value, or of each of several.

    Attributes:
        refs: The values it depends on.
        is_single: Whether it was asked about one value, and not about a list. Only such decisions are guessed.
        site: Its place in the workflow's code.
        likely: The outcome the author expects; None if not said.
        is_awaited: Whether the workflow has awaited it. If not, it decides nothing.
        at: The index in `refs` of the value that the function looks at, or looked at last.
    """

    __slots__ = ("at", "function", "is_awaited", "is_single", "kind", "likely", "refs", "site")

    def __init__(
        self,
        kind: DecisionKind,
        subject: Ref | Sequence[Ref],
        function: Callable[[Any], Any],
        site: DecisionSite,
        likely: Hashable = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"dyorc.{kind.value} asks a function of the value, got {type(function).__name__} {function!r}")
        self.is_single = isinstance(subject, Ref)
        self.refs: tuple[Ref, ...] = (subject,) if isinstance(subject, Ref) else _refs_of(kind, subject)
        if likely is not None and not self.is_single:
            raise TypeError(
                f"dyorc.{kind.value} about several values is never guessed, so `likely=` would do nothing; leave it out"
            )
        self.kind = kind
        self.function = function
        self.site = site
        self.likely = likely
        self.is_awaited = False
        self.at = 0

    def __await__(self) -> Generator["Decision", Any, Any]:
        self.is_awaited = True
        return (yield self)

    def __repr__(self) -> str:
        return f"dyorc.{self.kind.value} ({self.site})"

    def freeze(self) -> None:
        """Freezes the function's variables, for a run that may go on before the decision is taken."""
        self.function = freeze(self.function)

    def decide(self, values: Sequence[Any], workflow: str = "") -> Hashable:
        """Returns the outcome for the values of its Refs: of one value its own, of several `Outcomes`.

        Args:
            workflow: The name of the workflow that asks, for errors; empty: unknown.

        Raises:
            WorkflowError: If the function does not return a bool (for `when`) or something hashable (for `choose`).
        """
        if self.is_single:
            return self._outcome(values[0], workflow)
        outcomes: list[Hashable] = []
        for self.at, value in enumerate(values):
            outcomes.append(self._outcome(value, workflow))
        return Outcomes(outcomes)

    def mistake(self, workflow: str, text: str, site: DecisionSite | None = None) -> WorkflowError:
        """Returns the error of a function that raised, or returned something that is no outcome: with the workflow, the value's
        index if there are several, and the line.

        Args:
            text: What the function did.
            site: The line, if it is another than the decision's own.
        """
        function = "predicate" if self.kind is _WHEN else "key"
        index = "" if self.is_single else f" (for the value at index {self.at})"
        return WorkflowError(f"{_named(workflow)}the {function} of a decision {text}{index} ({site or self.site})")

    def unreadable(self, workflow: str, at: int, reason: str) -> WorkflowError:
        """Returns the error of a value that cannot be looked at, such as a part beyond its array's end.

        Args:
            at: Its index.
            reason: Why.
        """
        index = "" if self.is_single else f" at index {at}"
        return WorkflowError(f"{_named(workflow)}a decision cannot look at its value{index}: {reason} ({self.site})")

    def _outcome(self, value: Any, workflow: str) -> Hashable:
        outcome = self.function(value)
        if type(outcome) is not bool:
            outcome = _as_python(outcome)
        if self.kind is _WHEN and not isinstance(outcome, bool):
            raise self.mistake(workflow, f"returned {type(outcome).__name__} {outcome!r}, expected a bool")
        try:
            hash(outcome)
        except TypeError:
            raise self.mistake(workflow, f"returned {type(outcome).__name__} {outcome!r}, which is not hashable") from None
        return outcome


def _named(workflow: str) -> str:
    """Returns how an error begins that belongs to a workflow; nothing if that is unknown."""
    return f"workflow {workflow!r}: " if workflow else ""


def _refs_of(kind: DecisionKind, subject: object) -> tuple[Ref, ...]:
    """Returns the Refs of a list.

    Raises:
        TypeError: If it is none, or holds something else.
    """
    if not isinstance(subject, list | tuple):
        raise TypeError(f"dyorc.{kind.value} looks at a Ref or a list of Refs, got {type(subject).__name__}")
    for at, ref in enumerate(subject):
        if not isinstance(ref, Ref):
            raise TypeError(f"dyorc.{kind.value} looks at a list of Refs, got {type(ref).__name__} at index {at}")
    return tuple(subject)


def _as_python(outcome: Any) -> Any:
    """Returns the Python number of an array, tensor or scalar of rank 0; anything else as it is."""
    return outcome.item() if hasattr(outcome, "item") and getattr(outcome, "ndim", None) == 0 else outcome


decisions_made: ContextVar[list[Decision] | None] = ContextVar("dyorc_decisions_made", default=None)
"""Collects the decisions of a run that is checked for unawaited ones; None in all other runs."""


def when(ref: Ref | Sequence[Ref], predicate: Callable[[Any], Any] = bool, *, likely: bool | None = None) -> Decision:
    """Asks a yes-or-no question about a value: ``if await dyorc.when(logits, is_confident): ...``.

    About a list it asks the question of each value, and gives a list of bools once all values are there:
    ``for is_sure, piece in zip(await dyorc.when(reads, is_confident), pieces): ...``.

    Args:
        ref: The value to decide by, or a list of them. They may not exist yet.
        predicate: A pure function from a value (NumPy) to a bool.
        likely: The usual outcome, used until DyOrc has seen enough requests. Not for a list, which is never guessed.

    Raises:
        TypeError: If it is given something other than Refs and a function, or `likely` for a list.
    """
    likely = None if likely is None else bool(likely)  # here, where an error is the workflow's
    return _record(Decision(_WHEN, ref, predicate, _site(), likely))


def choose(ref: Ref | Sequence[Ref], key: Callable[[Any], Any] = lambda value: value, *, likely: Hashable = None) -> Decision:
    """Chooses among several outcomes: ``match await dyorc.choose(scores, best): ...``.

    About a list it chooses for each value, and gives a list of outcomes once all values are there.

    Args:
        ref: The value to decide by, or a list of them. They may not exist yet.
        key: A pure function from a value (NumPy) to something small and hashable.
        likely: The usual outcome, used until DyOrc has seen enough requests. Not for a list, which is never guessed.

    Raises:
        TypeError: If it is given something other than Refs and a function, `likely` is not hashable, or given for a list.
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
