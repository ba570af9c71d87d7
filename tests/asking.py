"""Requests that tests hand to an orchestrator themselves."""

from typing import Any

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.models.offers import ModelKey
from dyorc.models.submission import Submission
from dyorc.orchestrator.orchestrator import Orchestrator


def submission(model: Workflow | Program, *values: Any, **others: Any) -> Submission:
    """Returns a request for the only version of a workflow or program; the rest is that of `Submission`."""
    return Submission(ModelKey(model.name), *values, **others)


def serve_also(orchestrator: Orchestrator, workflow: Workflow) -> None:
    """Has requests for the model of this name run a workflow, whatever they ran before."""
    orchestrator._registry.workflows[ModelKey(workflow.name)] = workflow  # pyright: ignore[reportPrivateUsage]
