"""Merged jobs as JSON, with their plans: all that is needed to run them.

As with plans, the same jobs are always the same text, and a digest of the content detects changes. Each phase is
a row: what it needs, the plan's step that it begins with, its seconds, and when it starts in units of time.
"""

import hashlib
from pathlib import Path

import msgspec

from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.core.plan_head import Header
from dyorc.errors import PlanError
from dyorc.planner.plan.plan_file import plan_from_json, plan_to_json
from dyorc.planner.planners.crossover.merge import JobPhase, MergedJob, MergedJobs, Resource
from dyorc.planner.whole_file import write_whole

FORMAT = "dyorc-merged-plans"
VERSION = 1


class PhaseRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A phase."""

    resource: str
    begins: int
    seconds: float
    start: int


class JobRow(msgspec.Struct, forbid_unknown_fields=True):
    """A job; its plan is the text of a plan's file."""

    name: str
    phases: list[PhaseRow]
    plan: msgspec.Raw


class MergedPlansDocument(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    format: str
    version: int
    digest: str
    period: int
    bound: int
    unit_s: float
    jobs: list[JobRow]


def is_merged(path: Path) -> bool:
    """Whether a file says that it holds merged jobs."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Header).format == FORMAT
    except DECODE_ERRORS:
        return False


def write_merged(merged: MergedJobs, path: Path) -> None:
    """Writes merged jobs to a file, which is either whole or not there.

    Raises:
        OSError: The file cannot be written.
    """
    jobs = [
        JobRow(
            name=job.name,
            phases=[
                PhaseRow(phase.resource.name.lower(), phase.begins, phase.seconds, start)
                for phase, start in zip(job.phases, job.starts, strict=True)
            ],
            plan=msgspec.Raw(plan_to_json(job.plan).strip()),
        )
        for job in merged.jobs
    ]
    document = MergedPlansDocument(FORMAT, VERSION, "", merged.period, merged.bound, merged.unit_s, jobs)
    document.digest = _digest(document)
    write_whole(path, msgspec.json.encode(document).decode() + "\n")


def read_merged(path: Path) -> MergedJobs:
    """Reads merged jobs from a file.

    Raises:
        OSError: The file cannot be read.
        PlanError: It holds no merged plans, is of another version, or was changed; names the file.
    """
    try:
        document = msgspec.json.decode(path.read_bytes(), type=MergedPlansDocument)
    except DECODE_ERRORS as error:
        raise PlanError(f"{path}: these are no merged plans, or only a part of them: {error}") from error
    if (document.format, document.version) != (FORMAT, VERSION):
        actual = f"{document.format!r}, version {document.version}"
        raise PlanError(f"{path}: expected format {FORMAT!r}, version {VERSION}, and found {actual}: merge the plans again")
    if (digest := _digest(document)) != document.digest:
        raise PlanError(
            f"{path}: the merged plans were changed after they were written: expected digest {document.digest!r}, "
            f"found {digest!r}"
        )
    resources = {phase.resource for row in document.jobs for phase in row.phases}
    if unknown := sorted(resources - {resource.name.lower() for resource in Resource}):
        raise PlanError(f"{path}: a phase uses {unknown[0]!r}, expected devices or network")
    jobs = tuple(
        MergedJob(
            name=row.name,
            plan=plan_from_json(bytes(row.plan).decode()),
            phases=tuple(
                JobPhase(resource=Resource[phase.resource.upper()], begins=phase.begins, seconds=phase.seconds)
                for phase in row.phases
            ),
            starts=tuple(phase.start for phase in row.phases),
        )
        for row in document.jobs
    )
    return MergedJobs(jobs=jobs, period=document.period, bound=document.bound, unit_s=document.unit_s)


def _digest(document: MergedPlansDocument) -> str:
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(document, digest=""))).hexdigest()
