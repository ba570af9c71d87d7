"""A pipeline's order as the table of actions that torch.distributed.pipelining reads: one line for each rank, one column for each
turn: `0F3` is the forward pass of stage 0 over microbatch 3.

That torch reads such tables is not part of its public interface (`_PipelineScheduleRuntime._load_csv`, format `compute_only`):
a test holds this against the installed version.
"""

import csv
import io
from collections.abc import Iterable

from dyorc.errors import PlanError
from dyorc.planner.plan import Apply, Plan
from dyorc.planner.program import TensorProgram
from dyorc.planner.program.graph import Phase


def pipelining_table(plan: Plan, program: TensorProgram) -> str:
    """Returns the table of a plan whose stages have a rank each.

    Args:
        plan: A pipeline: `tessel` with placement v, or `megatron` without tensor and data parallelism.
        program: Of the plan.

    Raises:
        PlanError: The plan is no such pipeline.
    """
    plan.check_program(program)
    meshes = list(plan.meshes.values())
    if any(len(mesh.ranks) != 1 or mesh.num_parts < 2 for mesh in meshes) or len({mesh.ranks for mesh in meshes}) != len(meshes):
        raise PlanError("torch's table is for pipelines in which each stage has its own rank and takes several microbatches")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for mesh in sorted(meshes, key=lambda mesh: mesh.ranks):
        steps = [step for step in plan.steps if isinstance(step, Apply) and step.mesh == mesh.name]
        writer.writerow(_actions(steps, program, mesh.ranks[0]))
    return text.getvalue()


def _actions(steps: Iterable[Apply], program: TensorProgram, stage: int) -> list[str]:
    """Where a pass is first seen with each microbatch: later steps of the same pass belong to it."""
    actions: dict[str, None] = {}
    heavy = {"mm", "bmm", "convolution", "convolution_backward", "embedding", "embedding_dense_backward"}
    for step in steps:
        phase = program.node_named[step.node].phase
        if step.part is not None and phase is not Phase.UPDATE and step.op.split(".")[1] in heavy:
            actions[f"{stage}{'F' if phase is Phase.FORWARD else 'B'}{step.part}"] = None
    return list(actions)
