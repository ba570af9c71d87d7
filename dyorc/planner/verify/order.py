"""In which order the steps of a plan make and read pieces: each before it is read, and once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dyorc.planner.plan import Apply, Step
from dyorc.planner.program import Partial
from dyorc.planner.verify.distinct import Distinct
from dyorc.planner.verify.reading import Form, Reading
from dyorc.planner.verify.report import Finding, FindingKind, pieces_text

_Pieces: TypeAlias = Sequence[tuple[str, int]]
"""Placed tensors and parts of the work; of a tensor that does not vary in time, part 0."""


@dataclass(slots=True)
class _Use:
    """What steps of one form read and make.

    Attributes:
        reads: Each tensor, with the number of its parts.
        makes: The same.
        num_parts: The most of them.
        max_part: What the number of a step's part must be below.
        sums: What they make that is a sum along time.
    """

    reads: _Pieces
    makes: _Pieces
    num_parts: int
    max_part: int
    sums: tuple[str, ...]


class Walk:
    """Goes through the steps in order, and notes what has been made."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._plan = reading.plan
        self._distinct = Distinct(reading)
        self._num_parts = _num_parts(reading)
        self._sums = _sums(reading)
        self._made: dict[tuple[str, int], int] = {}  # piece -> step, -1 for sources
        self._missing: list[tuple[int, _Pieces]] = []
        self._terms: dict[str, Form] = {}  # a sum along time -> what makes its terms
        self._findings: list[Finding] = []

    def run(self) -> list[Finding]:
        """Returns what is wrong with the order of the steps, and with what each says."""
        self._findings += self._begin()
        uses: dict[Form, _Use | None] = {}
        for number, form in enumerate(self._reading.forms):
            if form.number == number:
                uses[form] = self._use(form)
            if (use := uses[form]) is not None:
                self._take(number, self._plan.steps[number], form, use)
        self._findings += self._classify_missing()
        self._findings += self._end()
        return self._findings

    def _use(self, form: Form) -> _Use | None:
        """Checks what steps of a form say; returns None if they name what is not there."""
        findings = list(self._distinct.unknown_names(form))
        if findings:
            self._findings += findings
            return None
        self._findings += self._distinct.check(form)
        parts, spots, step = self._num_parts, self._reading.spots, form.step
        reads, makes = [(name, parts[name]) for name in form.inputs], [(name, parts[name]) for name in form.outputs]
        num_parts = max([num for _, num in (*reads, *makes)], default=1)
        mesh = self._plan.meshes[step.mesh] if isinstance(step, Apply) else self._plan.mesh_of(step.source)
        sums = tuple([name for name in form.outputs if spots[name] in self._sums]) if isinstance(step, Apply) else ()
        return _Use(reads, makes, num_parts, max(num_parts, mesh.num_parts), sums)

    def _take(self, number: int, step: Step, form: Form, use: _Use) -> None:
        part, made = step.part, self._made
        for tensor in use.sums:
            self._check_term(number, tensor, form)
        if part is None:
            is_wrong = use.num_parts > 1 and isinstance(step, Apply)
        else:
            is_wrong = not 0 <= part < use.max_part
        if is_wrong:
            kind, detail = FindingKind.WRONG_PART, str(use.num_parts)
            self._findings.append(Finding(kind=kind, step=number, subject=str(part), detail=detail))
        elif missing := [piece for piece in _touched(use.reads, part) if piece not in made]:
            self._missing.append((number, missing))
        for piece in _touched(use.makes, part):
            if made.setdefault(piece, number) != number:
                self._note_again(number, step, piece)

    def _note_again(self, number: int, step: Step, piece: tuple[str, int]) -> None:
        """A tensor that does not vary in time may be made again by the same step for another part, which changes nothing."""
        first, last = self._made[piece], self._findings[-1] if self._findings else None
        before = self._plan.steps[first] if first >= 0 and self._num_parts[piece[0]] == 1 else None
        if isinstance(before, Apply) and isinstance(step, Apply) and before.part != step.part and before.node == step.node:
            return
        if not (last and last.kind is FindingKind.MADE_TWICE and last.step == number):
            detail = "ranks begin with" if first < 0 else f"step {first} makes"
            self._findings.append(Finding(kind=FindingKind.MADE_TWICE, step=number, subject=piece[0], detail=detail))

    def _check_term(self, number: int, tensor: str, form: Form) -> None:
        """The terms of a sum along time must come from the same tensors."""
        first = self._terms.setdefault(tensor, form)
        if first is not form:
            detail = str(first.number)
            self._findings.append(Finding(kind=FindingKind.MIXED_PARTS, step=number, subject=tensor, detail=detail))

    def _begin(self) -> Iterator[Finding]:
        for value, tensors in self._plan.sources.items():
            if value not in self._reading.program.values or value in self._reading.program.producers:
                yield Finding(kind=FindingKind.BAD_SOURCE, subject=value, detail="it is no source of the program")
                continue
            for tensor in tensors:
                if tensor not in self._plan.tensors or self._plan.tensors[tensor].value != value:
                    yield Finding(kind=FindingKind.BAD_SOURCE, subject=value, detail=f"{tensor} is no placed tensor of it")
                else:
                    self._made.update(dict.fromkeys(_all_parts(tensor, self._num_parts[tensor]), -1))

    def _end(self) -> Iterator[Finding]:
        for value in self._reading.program.results:
            tensor = self._plan.results.get(value)
            if tensor is None or tensor not in self._plan.tensors:
                yield Finding(kind=FindingKind.MISSING_RESULT, subject=value, detail="it is not placed")
            elif self._plan.tensors[tensor].value != value:
                reason = f"{tensor} is a placed tensor of {self._plan.tensors[tensor].value}"
                yield Finding(kind=FindingKind.MISSING_RESULT, subject=value, detail=reason)
            elif missing := [part for _, part in _all_parts(tensor, self._num_parts[tensor]) if (tensor, part) not in self._made]:
                yield Finding(kind=FindingKind.MISSING_RESULT, subject=value, detail=f"parts {missing} of {tensor} are not made")

    def _classify_missing(self) -> Iterator[Finding]:
        """Says of pieces that were missing whether they are made later, or not at all."""
        for number, pieces in self._missing:
            for tensor in dict.fromkeys(tensor for tensor, _ in pieces):
                parts = tuple(part for name, part in pieces if name == tensor)
                later = [self._made[tensor, part] for part in parts if (tensor, part) in self._made]
                kind = FindingKind.SCHEDULE_HAZARD if later else FindingKind.MISSING_PRODUCER
                detail = str(max(later)) if later else ""
                yield Finding(kind=kind, step=number, subject=pieces_text(tensor, parts), detail=detail)


def _num_parts(reading: Reading) -> dict[str, int]:
    """How many parts each tensor has: one if it does not vary in time."""
    plan, known = reading.plan, dict[int, int]()
    for name, spot in reading.spots.items():
        if spot not in known:
            known[spot] = plan.mesh_of(name).num_parts if plan.varies_in_time(name) else 1
    return {name: known[spot] for name, spot in reading.spots.items()}


def _sums(reading: Reading) -> set[int]:
    """The spots of tensors that are sums along time."""
    plan, spots = reading.plan, set[int]()
    for name, spot in reading.spots.items() if any(mesh.time_axis is not None for mesh in plan.meshes.values()) else ():
        time = plan.mesh_of(name).time_axis
        if time is not None and isinstance(plan.tensors[name].layout[time], Partial):
            spots.add(spot)
    return spots


def _touched(tensors: _Pieces, part: int | None) -> _Pieces:
    """The pieces that a step of a part reads or makes; of all parts, if it is of none."""
    if part is not None:
        return [(name, part if num_parts > 1 else 0) for name, num_parts in tensors]
    return [piece for name, num_parts in tensors for piece in _all_parts(name, num_parts)]


def _all_parts(tensor: str, num_parts: int) -> _Pieces:
    return [(tensor, part) for part in range(num_parts)]
