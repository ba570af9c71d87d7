"""Public classes and files of `dyorc/` have names of their own, and locals are named for the thing that they hold.

What is left of the old names is listed here. The lists and counts may only shrink: a test fails when one is too short, and also
when it is too long.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_VAGUE = frozenset({"found", "told", "one", "what"})

_REPEATED_CLASSES: frozenset[str] = frozenset(
    """
    Answer Bars Batches Block Body Budget Call Claim Comparison Connection Delivery Edge Exchange Experts Form Graph
    Group Guesses History Holder Inputs Job Kind Layer Layout Leases Line Live LoopWatch Model ModelMetadata Needs
    Network Node Note Notes Observer Oracle Order Outcome Parts Path Piece Plan Plans Reading Recipe Recorder Ref
    Refusal Region Request Result Runner Scaler Setting Sink Site Slot Source Span Stage Staging Statistics Step
    StepWatch Table Tally Target TensorMetadata Tier Traces Turns Walk Watch Welcome
    """.split()  # noqa: SIM905
)
_REPEATED_FILES: frozenset[str] = frozenset(
    """
    actions.py algebra.py alike.py answers.py arrivals.py assignment.py backend.py bars.py batches.py blocks.py
    budget.py calls.py cell.py changes.py channel.py channels.py chunks.py cli.py codec.py collectives.py compare.py
    comparison.py connections.py control.py costs.py crossovers.py deployments.py draws.py elementwise.py emit.py
    endings.py ends.py errors.py exact.py exchange.py executor.py experts.py figures.py file.py foresight.py
    frames.py graph.py headers.py indices.py inference.py inputs.py jobs.py kernels.py keys.py lanes.py layers.py
    leases.py ledger.py levels.py limits.py loop_watch.py main.py memory.py messages.py moves.py network.py notes.py
    operations.py optimizer.py oracle.py order.py overlapped.py parameters.py paths.py peers.py pending.py
    picture.py planes.py plans.py pools.py ports.py processes.py program.py programs.py progress.py published.py
    readiness.py reading.py realise.py records.py refusals.py replicas.py requests.py results.py routes.py rows.py
    runner.py running.py samples.py schedule.py schema.py search.py server.py shapes.py shared_memory.py show.py
    siblings.py simulate.py slots.py staging.py starting.py statistics.py steps.py streams.py sums.py targets.py
    tasks.py tensors.py training.py turns.py walks.py watch.py weights.py whole.py wire.py
    """.split()  # noqa: SIM905
)
_VAGUE_LOCALS: dict[str, int] = {
    "benchmarks": 174,
    "dyorc": 72,
    "dyorc/authoring": 23,
    "dyorc/cells": 1,
    "dyorc/client": 6,
    "dyorc/settings": 32,
    "dyorc/deployment": 60,
    "dyorc/engine": 12,
    "dyorc/gateway": 151,
    "dyorc/ray_serve": 19,
    "dyorc/leader_election": 1,
    "dyorc/planner": 341,
    "dyorc/orchestrator": 17,
    "dyorc/protocol": 1,
    "dyorc/cluster": 21,
    "dyorc/replica": 10,
    "dyorc/scaling": 6,
    "dyorc/server": 17,
    "dyorc/simulation": 15,
    "dyorc/store": 23,
    "dyorc/supervisor": 14,
    "dyorc/telemetry": 43,
    "dyorc/testing": 7,
    "dyorc/transport": 5,
    "loadgen": 49,
}


def _sources(folder: str) -> Iterator[Path]:
    return (path for path in sorted((_ROOT / folder).rglob("*.py")) if not path.stem.endswith(("_pb2", "_pb2_grpc")))


def _has_name_by_convention(path: Path) -> bool:
    """Returns whether other files may have this file's name: a package's, a command's, or a planner's plan."""
    parts = path.relative_to(_ROOT / "dyorc").parts
    return path.name in ("__init__.py", "__main__.py", "plan.py") or parts[0] == "cli"


def _repeated(names: Iterator[str]) -> set[str]:
    return {name for name, number in Counter(names).items() if number > 1}


def _public_classes(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def _vague_locals(path: Path) -> int:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    stored = sum(isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in _VAGUE for node in nodes)
    return stored + sum(isinstance(node, ast.arg) and node.arg in _VAGUE for node in nodes)


def test_public_classes_have_names_of_their_own() -> None:
    assert _repeated(name for path in _sources("dyorc") for name in _public_classes(path)) == _REPEATED_CLASSES


def test_files_have_names_of_their_own() -> None:
    assert _repeated(path.name for path in _sources("dyorc") if not _has_name_by_convention(path)) == _REPEATED_FILES


def test_locals_are_named_for_what_they_hold() -> None:
    packages = [f"dyorc/{path.name}" for path in (_ROOT / "dyorc").iterdir() if path.is_dir()]
    numbers = {folder: sum(map(_vague_locals, _sources(folder))) for folder in [*packages, "loadgen", "benchmarks"]}
    numbers["dyorc"] = sum(map(_vague_locals, (_ROOT / "dyorc").glob("*.py")))
    assert {folder: number for folder, number in numbers.items() if number} == _VAGUE_LOCALS
