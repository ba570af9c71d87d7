"""What a verification finds: one type for each kind of fault, with what was expected and what is there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isinf
from typing import TypeAlias


class Tier(StrEnum):
    """A way to check a plan; each later one sees more and takes longer."""

    STRUCTURE = "structure"  # names, order, layouts and arguments
    FIELD = "field"  # random elements of a finite field
    PROOF = "proof"  # formulas


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongProgram:
    """The plan is for another program."""

    expected: str
    found: str

    def __str__(self) -> str:
        return f"the plan is for a program with digest {self.expected[:12]}, and the program has {self.found[:12]}: plan it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadMesh:
    """A mesh cannot be one."""

    mesh: str
    reason: str

    def __str__(self) -> str:
        return f"mesh {self.mesh}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadTensor:
    """A placed tensor's value, mesh or layout does not fit the program."""

    tensor: str
    reason: str

    def __str__(self) -> str:
        return f"tensor {self.tensor}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadSource:
    """Ranks are said to begin with something that is no source of the program."""

    value: str
    reason: str

    def __str__(self) -> str:
        return f"source {self.value}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingResult:
    """A result of the program is not placed, or its pieces are not all made in the end."""

    value: str
    reason: str

    def __str__(self) -> str:
        return f"result {self.value}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownName:
    """A step names a tensor, mesh, axis or node that is not there."""

    step: int
    kind: str
    name: str

    def __str__(self) -> str:
        return f"step {self.step}: there is no {self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOutput:
    """A step computes nothing that is kept."""

    step: int
    node: str

    def __str__(self) -> str:
        return f"step {self.step}, node {self.node}, has no output"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongMesh:
    """A step runs on one mesh and reads or makes a tensor that lies on another."""

    step: int
    tensor: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"step {self.step} runs on mesh {self.expected}, and {self.tensor} lies on {self.found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongOperation:
    """A step computes something else than the node that it names."""

    step: int
    node: str
    what: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"step {self.step}: the {self.what} of node {self.node}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingProducer:
    """A step reads pieces that no step makes."""

    step: int
    tensor: str
    parts: tuple[int, ...]

    def __str__(self) -> str:
        return f"step {self.step} reads {self.tensor}{_parts(self.parts)}, which no step makes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleHazard:
    """A step reads pieces before the step that makes them, such as a sum before the last microbatch."""

    step: int
    tensor: str
    parts: tuple[int, ...]
    made_by: int

    def __str__(self) -> str:
        return f"step {self.step} reads {self.tensor}{_parts(self.parts)}, which step {self.made_by} makes later"


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTwice:
    """Two steps make the same pieces: a step is repeated, or two tensors were mistaken for one."""

    step: int
    tensor: str
    first: int

    def __str__(self) -> str:
        return f"step {self.step} makes {self.tensor} again, which step {self.first} has made"


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedParts:
    """The parts of a sum along time are not computed alike, so that nothing says that they are its terms."""

    step: int
    tensor: str
    first: int

    def __str__(self) -> str:
        return f"step {self.step} makes a term of {self.tensor} from other tensors than step {self.first} makes its term from"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongKind:
    """A collective does not change the one placement into the other."""

    step: int
    kind: str
    axis: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"step {self.step}: {self.kind} along {self.axis} does not change {self.before} into {self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesElsewhere:
    """A collective's or transfer's target differs from its source in something that it does not change."""

    step: int
    what: str
    source: str
    target: str

    def __str__(self) -> str:
        return f"step {self.step}: the {self.what} of its source is {self.source}, and of its target {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerCut:
    """A collective changes how an axis cuts a dimension that another axis cuts inside it: its pieces are not regions."""

    step: int
    axis: str
    inner: str

    def __str__(self) -> str:
        return f"step {self.step} changes axis {self.axis} while {self.inner} cuts the same dimension inside it"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadEdge:
    """A way that a message takes leads elsewhere than its transfer does."""

    step: int
    reason: str

    def __str__(self) -> str:
        return f"step {self.step}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOverwritten:
    """A transfer fills memory in which another message still lies that is needed later: the sender would wait for ever."""

    step: int
    source: int
    target: int
    slot: int
    first: int
    last: float

    def __str__(self) -> str:
        until = "the end" if isinf(self.last) else f"step {self.last:.0f}"
        return (
            f"step {self.step} fills slot {self.slot} from rank {self.source} to rank {self.target}, where what step "
            f"{self.first} sent is needed until {until}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongPart:
    """A step is for a part of the work that is not there, or for none where it must be for one."""

    step: int
    part: int | None
    num_parts: int

    def __str__(self) -> str:
        return f"step {self.step} is for part {self.part} of the work, which has {self.num_parts} parts"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesDisagree:
    """One axis cuts the tensors of one step in different proportions."""

    step: int
    axis: str
    one: str
    other: str

    def __str__(self) -> str:
        return f"step {self.step}: axis {self.axis} cuts {self.one} and {self.other} in different proportions"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadKernel:
    """A kernel would not compute what its steps compute."""

    step: int
    reason: str

    def __str__(self) -> str:
        return f"step {self.step}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongShape:
    """What a step makes has not the shape of the piece that its layout says."""

    tier: Tier
    step: int | None
    tensor: str
    position: Mapping[str, int]
    expected: tuple[int, ...]
    found: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{_step(self.step)}: {self.tensor} at {_position(self.position)}: expected a piece of shape "
            f"{list(self.expected)}, found {list(self.found)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unequal:
    """A piece, or the sum of its terms, is not what the program computes.

    Attributes:
        tier: Which tier found it.
        step: The number of the step, or None for a result of the whole plan.
        tensor: The placed tensor, or the result's value.
        position: Where, by mesh axis; on the smaller mesh and shapes that the tier runs the step on.
        index: The first element that differs.
        expected: The program's element.
        found: The plan's.
        counterexample: Values of symbols at which the two differ, if a solver gave some.
    """

    tier: Tier
    step: int | None
    tensor: str
    position: Mapping[str, int]
    index: tuple[int, ...]
    expected: str
    found: str
    counterexample: Mapping[str, str] = field(default_factory=dict[str, str])

    def __str__(self) -> str:
        where = f" at {_position(self.position)}" if self.position else ""
        example = ", ".join(f"{name} = {value}" for name, value in list(self.counterexample.items())[:6])
        text = (
            f"{_step(self.step)}: {self.tensor}{where}, element {list(self.index)}: expected {self.expected}, found {self.found}"
        )
        return text + (f"; they differ at {example}" if example else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CannotRun:
    """A step fails when it is run on the pieces that its layouts say."""

    tier: Tier
    step: int | None
    reason: str

    def __str__(self) -> str:
        return f"{_step(self.step)} cannot run: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unproved:
    """A step may be right, and this tier cannot show it."""

    tier: Tier
    step: int
    reason: str

    def __str__(self) -> str:
        return f"step {self.step} is not proved: {self.reason}"


Finding: TypeAlias = (
    WrongProgram
    | BadMesh
    | BadTensor
    | BadSource
    | MissingResult
    | UnknownName
    | NoOutput
    | WrongMesh
    | WrongOperation
    | MissingProducer
    | ScheduleHazard
    | MadeTwice
    | MixedParts
    | WrongKind
    | ChangesElsewhere
    | InnerCut
    | BadEdge
    | SlotOverwritten
    | WrongPart
    | SharesDisagree
    | BadKernel
    | WrongShape
    | Unequal
    | CannotRun
    | Unproved
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRun:
    """What one tier did.

    Attributes:
        tier: Which.
        seconds: How long it took.
        num_steps: How many steps of the plan it covers.
        num_distinct: How many distinct cases it ran for them.
        num_solver: How many of those needed the solver.
        notes: What it left out, for people.
    """

    tier: Tier
    seconds: float
    num_steps: int
    num_distinct: int
    num_solver: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.tier:
            case Tier.STRUCTURE:
                what = f"names, order and layouts of all {self.num_steps:,} steps"
            case Tier.FIELD:
                whole = f"; {'; '.join(self.notes)}" if self.notes else "; the whole plan, too"
                what = f"{self.num_distinct:,} distinct steps on random elements of a finite field{whole}"
            case Tier.PROOF:
                what = f"{self.num_distinct:,} distinct steps as formulas, {self.num_solver:,} of them decided by the solver"
        return f"{self.tier:<10}{self.seconds:8.2f} s  {what}"


_MAX_SHOWN = 20
"""Findings that people are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The verdict on a plan.

    Attributes:
        program: The program's name.
        findings: What is wrong or not proved, in the order of tiers and steps.
        runs: What each tier did.
    """

    program: str
    findings: tuple[Finding, ...]
    runs: tuple[TierRun, ...]

    @property
    def is_proved(self) -> bool:
        """Whether structure and proof ran and found nothing, nor any other tier."""
        return not self.findings and {Tier.STRUCTURE, Tier.PROOF} <= {run.tier for run in self.runs}

    def __str__(self) -> str:
        verdict = "proved" if self.is_proved else f"{len(self.findings)} findings" if self.findings else "nothing found"
        more = [f"and {len(self.findings) - _MAX_SHOWN} more"] if len(self.findings) > _MAX_SHOWN else []
        lines = [*map(str, self.runs), *map(str, self.findings[:_MAX_SHOWN]), *more]
        return "\n".join([f"{self.program}: {verdict}", *(f"  {line}" for line in lines)])


def _step(step: int | None) -> str:
    return "the whole plan" if step is None else f"step {step}"


def _parts(parts: tuple[int, ...]) -> str:
    return f", part{'s' if len(parts) > 1 else ''} {', '.join(map(str, parts))}" if parts else ""


def _position(position: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {index}" for name, index in position.items())
