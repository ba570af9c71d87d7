"""The result of a verification: what each tier did, and what is wrong with the plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Tier(StrEnum):
    """A way to check a plan; each later one sees more and takes longer."""

    STRUCTURE = "structure"  # names, order, layouts and arguments
    FIELD = "field"  # random elements of a finite field
    PROOF = "proof"  # formulas


class FindingKind(StrEnum):
    """A kind of fault."""

    WRONG_PROGRAM = "WrongProgram"  # the plan is for another program
    BAD_MESH = "BadMesh"
    BAD_TENSOR = "BadTensor"  # a placed tensor's value, mesh or layout does not fit the program
    BAD_SOURCE = "BadSource"  # ranks begin with a value that is no source of the program
    MISSING_RESULT = "MissingResult"  # a result is not placed, or not all of its pieces are made
    UNKNOWN_NAME = "UnknownName"  # a step names a tensor, mesh, axis or node that is not there
    NO_OUTPUT = "NoOutput"  # a step computes nothing that is kept
    WRONG_MESH = "WrongMesh"  # a step reads or makes a tensor that lies on another mesh than the step runs on
    WRONG_OPERATION = "WrongOperation"  # a step does not compute the node that it names
    MISSING_PRODUCER = "MissingProducer"  # a step reads pieces that no step makes
    SCHEDULE_HAZARD = "ScheduleHazard"  # a step reads pieces too early, such as a sum before the last microbatch
    MADE_TWICE = "MadeTwice"  # a step is repeated, or two tensors were mistaken for one
    MIXED_PARTS = "MixedParts"  # parts of a sum along time are computed differently, so they may not be its terms
    WRONG_KIND = "WrongKind"  # a collective does not change the one placement into the other
    CHANGES_ELSEWHERE = "ChangesElsewhere"  # source and target differ in something that a collective or transfer keeps
    INNER_CUT = "InnerCut"  # a collective changes how an axis cuts a dimension that another axis cuts inside it
    BAD_EDGE = "BadEdge"  # a message of a transfer leads to the wrong rank
    SLOT_OVERWRITTEN = "SlotOverwritten"  # a message fills memory that another one still needs: the sender would wait for ever
    WRONG_PART = "WrongPart"  # the part of the work that a step is for does not exist, or is missing
    SHARES_DISAGREE = "SharesDisagree"  # one axis cuts the tensors of one step in different proportions
    BAD_KERNEL = "BadKernel"  # a kernel would not compute what its steps compute
    WRONG_SHAPE = "WrongShape"  # a step makes a piece whose shape is not the one that its layout says
    UNEQUAL = "Unequal"  # a piece, or the sum of its terms, is not what the program computes
    CANNOT_RUN = "CannotRun"  # a step fails on the pieces that its layouts say
    UNPROVED = "Unproved"  # a step may be right, but this tier cannot show it


_TEXTS = {
    FindingKind.WRONG_PROGRAM: "the plan is for a program with digest {subject}, and the program has {detail}: plan it again",
    FindingKind.BAD_MESH: "mesh {subject}: {detail}",
    FindingKind.BAD_TENSOR: "tensor {subject}: {detail}",
    FindingKind.BAD_SOURCE: "source {subject}: {detail}",
    FindingKind.MISSING_RESULT: "result {subject}: {detail}",
    FindingKind.UNKNOWN_NAME: "{step}: there is no {detail} {subject}",
    FindingKind.NO_OUTPUT: "{step}, node {subject}, has no output",
    FindingKind.WRONG_MESH: "{step} runs on mesh {detail}",
    FindingKind.WRONG_OPERATION: "{step}: the {detail}",
    FindingKind.MISSING_PRODUCER: "{step} reads {subject}, which no step makes",
    FindingKind.SCHEDULE_HAZARD: "{step} reads {subject}, which step {detail} makes later",
    FindingKind.MADE_TWICE: "{step} makes {subject} again: {detail} it",
    FindingKind.MIXED_PARTS: "{step} makes a term of {subject} from other tensors than step {detail} makes its term from",
    FindingKind.WRONG_KIND: "{step}: {subject} does not change {detail}",
    FindingKind.CHANGES_ELSEWHERE: "{step}: the {subject} of its source is {detail}",
    FindingKind.INNER_CUT: "{step} changes axis {subject} while {detail} cuts the same dimension inside it",
    FindingKind.BAD_EDGE: "{step}: {detail}",
    FindingKind.SLOT_OVERWRITTEN: "{step} fills {subject}, which holds a message that is needed {detail}",
    FindingKind.WRONG_PART: "{step} is for part {subject} of the work, which has {detail} parts",
    FindingKind.SHARES_DISAGREE: "{step}: axis {subject} cuts {detail} in different proportions",
    FindingKind.BAD_KERNEL: "{step}: {detail}",
    FindingKind.WRONG_SHAPE: "{step}: {subject}: {detail}",
    FindingKind.UNEQUAL: "{step}: {subject}, {detail}",
    FindingKind.CANNOT_RUN: "{step} cannot run: {detail}",
    FindingKind.UNPROVED: "{step} is not proved: {detail}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with a plan, or not proved.

    Attributes:
        kind: What is wrong.
        step: The number of the step; None for the whole plan.
        subject: The tensor, value, mesh, axis or node.
        detail: What the text of its kind says of the subject: a reason, or what is expected and what is there.
    """

    kind: FindingKind
    step: int | None = None
    subject: str = ""
    detail: str = ""

    def __str__(self) -> str:
        step = "the whole plan" if self.step is None else f"step {self.step}"
        return _TEXTS[self.kind].format(step=step, subject=self.subject, detail=self.detail)


def pieces_text(tensor: str, parts: tuple[int, ...]) -> str:
    """Names pieces of a placed tensor: the tensor, and its parts in time if there are some."""
    return f"{tensor}, part{'s' if len(parts) > 1 else ''} {', '.join(map(str, parts))}" if parts else tensor


def piece_text(tensor: str, position: Mapping[str, int]) -> str:
    """Names a piece of a placed tensor by its position on the mesh, as the tier ran it: possibly on a smaller one."""
    place = ", ".join(f"{axis} {index}" for axis, index in position.items())
    return f"{tensor} at {place}" if place else tensor


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
                work = f"names, order and layouts of all {self.num_steps:,} steps"
            case Tier.FIELD:
                whole = f"; {'; '.join(self.notes)}" if self.notes else "; the whole plan, too"
                work = f"{self.num_distinct:,} distinct steps on random elements of a finite field{whole}"
            case Tier.PROOF:
                work = f"{self.num_distinct:,} distinct steps as formulas, {self.num_solver:,} of them decided by the solver"
        return f"{self.tier:<10}{self.seconds:8.2f} s  {work}"


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
