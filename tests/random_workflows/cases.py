"""A case: a workflow's source, the requests that it gets, and what comes out."""

import builtins
import re
import types
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

FOLDER = Path(__file__).parent
FORCED: Mapping[str, Any] = {
    "margin": 0, "max_wasted_ratio": 0.95, "min_probability": 0.0, "max_depth": 8, "burst_s": 1e6, "compare": False,
}  # fmt: skip
"""Settings of `engine.speculation` with which every decision is guessed, whatever that costs."""
_PLACE = re.compile(r" \([^()]*\.py, line \d+\)| \(for the value at index \d+\)")
_ASKING = re.compile(r"workflow '[^']*': the (?:predicate|key) of a decision")


@dataclass(frozen=True, eq=False)
class Request:
    """What a client asks: a vector, a number that names the request in its effects, and parameters that are not tensors."""

    x: np.ndarray[Any, Any]
    ticket: int
    statics: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Case:
    """A workflow and its requests.

    Attributes:
        name: Of the workflow, and a part of the name of everything that its source declares.
        source: A module that imports `dyorc` and `programs`.
    """

    name: str
    source: str
    requests: tuple[Request, ...]

    @property
    def is_streaming(self) -> bool:
        """Whether the workflow yields its answer in parts."""
        head = next(line for line in self.source.splitlines() if line.startswith(f"async def {self.name}("))
        return "-> AsyncIterator" in head

    def renamed(self, name: str, first_ticket: int) -> "Case":
        """Returns the same case under a name and tickets of its own, so that both may run at once."""
        requests = [replace(request, ticket=first_ticket + at) for at, request in enumerate(self.requests)]
        return Case(name, re.sub(rf"\b{self.name}(?=\b|_)", name, self.source), tuple(requests))


@dataclass(frozen=True)
class Value:
    """What a request was answered with: type, shape and bytes of each tensor."""

    tensors: tuple[tuple[str, tuple[int, ...], str], ...]

    @classmethod
    def of(cls, answer: Any) -> "Value":
        """Returns what there is to compare of a tensor, or of a tuple or dict of tensors."""
        parts: Sequence[Any] = (
            list(answer.values()) if isinstance(answer, dict) else answer if isinstance(answer, tuple) else [answer]
        )
        arrays = [np.asarray(part) for part in parts]
        return cls(tuple([(str(a.dtype), a.shape, np.ascontiguousarray(a).tobytes().hex()) for a in arrays]))


@dataclass(frozen=True)
class Failure:
    """What a request failed with: the class of the error, and its text without places in files."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        return cls(type(error).__name__, _ASKING.sub("the predicate of a decision", _PLACE.sub("", str(error))))


@dataclass(frozen=True)
class Parts:
    """What a request of a workflow that yields was answered with.

    Attributes:
        values: Of all parts.
        failure: What came after them, if it failed.
    """

    values: tuple[Value, ...]
    failure: Failure | None


Answer: TypeAlias = Value | Parts | Failure


@dataclass
class Outcome:
    """What came of a case's requests.

    Attributes:
        answers: By ticket.
        effects: How many times each happened.
        counts: Of what happened on the way, for instance decisions.
    """

    answers: dict[int, Answer] = field(default_factory=dict[int, Answer])
    effects: Counter[str] = field(default_factory=Counter[str])
    counts: Counter[str] = field(default_factory=Counter[str])


def source_of(name: str) -> str:
    """Returns the source of one of the files that generated workflows import."""
    return (FOLDER / f"{name}.py").read_text()


def load(name: str, source: str, modules: Mapping[str, Any]) -> types.ModuleType:
    """Executes a module's source, in which `modules` stand for what it would import under their names."""

    def load_module(name: str, *arguments: Any) -> Any:
        return modules[name] if name in modules else builtins.__import__(name, *arguments)

    module = types.ModuleType(name)
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": load_module}
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    return module
