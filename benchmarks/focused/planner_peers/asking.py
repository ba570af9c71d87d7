"""Asks other planners, each in its own process and environment, and makes plans of their answers."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from benchmarks.focused.planner_peers import sailor_files
from benchmarks.focused.planner_peers.cases import Case
from benchmarks.focused.planner_peers.placements import plan_of_placements, read_placements
from benchmarks.focused.planner_peers.stages import plan_of_pipeline, read_pipelines
from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Plan
from dyorc.planner.program import TensorProgram

_ROOT = Path(__file__).resolve().parents[3]
_PACKAGE = "benchmarks.focused.planner_peers"
_LIMIT_S = 900.0
_BEST = 10
"""So many of Sailor's plans, best first by its own reckoning, are priced here."""


class NoAnswerError(Exception):
    """Another planner has failed, or says that there is no plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A plan of another planner.

    Attributes:
        plan: As imported.
        search_s: How long the other planner took.
        search_cpu_s: How long processors worked for it.
        expected_s: What it expects of a step.
        more: What else is known of it.
    """

    plan: Plan
    search_s: float
    search_cpu_s: float
    expected_s: float
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])


Ask: TypeAlias = Callable[[Case, TensorProgram, Cluster], Sequence[Answer]]
"""Returns the planner's plans, its choice first."""


def autoparallel(source: Path, *, is_sharded: bool) -> Ask:
    """Returns what asks autoparallel.

    Args:
        source: A checkout of it.
        is_sharded: Whether parameters may take no more memory than if each were cut over all ranks, which its documentation
            recommends; if not, they may lie as they like.
    """
    name = "autoparallel-sharded" if is_sharded else "autoparallel"

    def ask(case: Case, program: TensorProgram, cluster: Cluster) -> Sequence[Answer]:
        if len(set(case.machines.speeds)) > 1:
            raise NoAnswerError("it knows one kind of device")
        python = _ROOT / ".venv-peers" / "autoparallel" / "bin" / "python"
        command = [str(python), "-m", f"{_PACKAGE}.ask_autoparallel"]
        with TemporaryDirectory(prefix="dyorc-peers-") as folder:
            answer = _answer(command, case.question(is_sharded=is_sharded), Path(folder), [_ROOT, source])
        imported = plan_of_placements(program, cluster, read_placements(answer), name)
        more = {
            "trace_s": round(answer["trace_s"], 2),
            "solve_s": round(answer["solve_s"], 2),
            "products": imported.num_products,
            "products_alike": imported.num_products_alike,
            "nodes": imported.num_nodes,
            "nodes_alike": imported.num_alike,
            "not_expressed": len(imported.not_expressed),
        }
        return [_with_times(imported.plan, answer, answer["cost_s"], more)]

    return ask


def sailor(library: Path) -> Ask:
    """Returns what asks Sailor's planner, given its compiled library."""

    def ask(case: Case, program: TensorProgram, cluster: Cluster) -> Sequence[Answer]:
        if case.model == "mlp":
            raise NoAnswerError("it plans transformers")
        with TemporaryDirectory(prefix="dyorc-peers-") as name:
            folder = Path(name)
            question = sailor_files.write(program, cluster, folder, library)
            answer = _answer([sys.executable, str(Path(__file__).with_name("ask_sailor.py"))], question, folder, [])
        if not answer["plans"]:
            raise NoAnswerError("it says that there is no plan")
        return list(_sailor_plans(program, cluster, answer))

    return ask


def _sailor_plans(program: TensorProgram, cluster: Cluster, answer: Mapping[str, Any]) -> Iterator[Answer]:
    layers, kinds = sailor_files.layer_of_parameters(program), sailor_files.kinds_of(cluster)
    for number, pipeline in enumerate(read_pipelines(answer)[:_BEST]):
        try:
            plan = plan_of_pipeline(program, cluster, pipeline, layers, kinds, "sailor")
        except PlanError:
            if number == 0:
                raise
            continue
        more = {"chosen": str(pipeline), "plans": answer["num_plans"]}
        yield _with_times(plan, answer, pipeline.step_s, more)


def _with_times(plan: Plan, answer: Mapping[str, Any], expected_s: float, more: Mapping[str, Any]) -> Answer:
    return Answer(plan=plan, search_s=answer["took_s"], search_cpu_s=answer["took_cpu_s"], expected_s=expected_s, more=more)


def _answer(command: Sequence[str], question: Mapping[str, Any], folder: Path, paths: Sequence[Path]) -> dict[str, Any]:
    """Runs a command with a question, and returns its answer.

    Raises:
        NoAnswerError: It failed; the last line of what it wrote says why.
    """
    question_file, answered = folder / "question.json", folder / "answer.json"
    question_file.write_text(json.dumps(question))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    try:
        done = subprocess.run(
            [*command, str(question_file), str(answered)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"no answer within {_LIMIT_S:.0f} s") from error
    except OSError as error:
        raise NoAnswerError(str(error)) from error
    if done.returncode != 0 or not answered.exists():
        lines = done.stderr.strip().splitlines() or ["it wrote nothing"]
        raise NoAnswerError(f"exit status {done.returncode}: {lines[-1]}")
    return json.loads(answered.read_text())
