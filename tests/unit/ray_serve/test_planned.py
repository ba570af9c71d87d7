"""What Ray and the server know of a program that runs split over several processes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.program import Program
from dyorc.cells.local_fleet import CellSite, LocalFleet
from dyorc.cli.serving_options import plans_of
from dyorc.config import CellsConfig, DeploymentConfig, Settings
from dyorc.core.plan_head import VERSION
from dyorc.errors import ConfigurationError, DefinitionError, PlanError
from dyorc.ray_serve.replica_specs import ReplicaSpecs, libraries_of_plans
from dyorc.replica.assignment import ForkServerSpec, ProgramSource

_HEAD: dict[str, Any] = {
    "format": "dyorc-plan",
    "version": VERSION,
    "digest": "d",
    "meshes": [{"name": "all", "axes": [["tensor", 2, False]], "ranks": [0, 1]}],
    "inference": {"inputs": ["x"], "outputs": ["y"], "max_samples": 8, "batch_dims": {}, "is_proved": True},
}


@dyorc.program(max_batch_size=8)
def one(x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
    return x


def _plan(folder: Path, **changes: Any) -> str:
    path = folder / "one.plan"
    path.write_text(json.dumps(_HEAD | changes))
    return str(path)


def _plans(*programs: Program) -> ReplicaSpecs:
    places = dict.fromkeys(programs, ProgramSource(folder="", target="", program=""))
    return ReplicaSpecs(places, DeploymentConfig(), ForkServerSpec(folder=""), "here", 1.0)


def test_ray_reserves_for_all_processes_of_a_group(tmp_path: Path) -> None:
    options = {"num_cpus": 1.5, "num_gpus": 1, "memory": 100, "resources": {"disk": 2}}
    split = one.with_options(plan=_plan(tmp_path), ray_actor_options=options, num_replicas=3)
    plans = _plans(split)
    assert plans.actor_options(split, 8) == {"num_cpus": 3.0, "num_gpus": 2, "memory": 200, "resources": {"disk": 4}}
    assert plans.num_cpus_wanted == 9
    assert _plans(one).actor_options(one, 8) == {}
    assert libraries_of_plans([one, split])
    assert not libraries_of_plans([one])


def test_a_program_scaled_to_zero_does_not_share_its_devices_by_turns(tmp_path: Path) -> None:
    bounds = {"min_replicas": 0, "max_replicas": 4}
    split = one.with_options(plan=_plan(tmp_path), ray_actor_options={"num_gpus": 1}, autoscaling_config=bounds)
    assert _plans(split).actor_options(split, 2)["num_gpus"] == 2


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"inference": None}, "is the plan of a training step"),
        ({"inference": _HEAD["inference"] | {"is_proved": False}}, "has not been proved"),
        ({"format": "other"}, "expected a single plan, format 'dyorc-plan', and found format 'other'"),
        ({"meshes": 1}, "one.plan cannot be read: "),
    ],
)
def test_a_file_that_cannot_be_served_is_named_when_the_server_starts(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(PlanError, match=text) as caught:
        _plans(one.with_options(plan=_plan(tmp_path, **changes)))
    assert "one.plan" in str(caught.value)


def test_a_plan_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"none\.plan cannot be read: No such file"):
        _plans(one.with_options(plan=str(tmp_path / "none.plan")))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_batch_size": 9}, "max_batch_size is 9, and its plan .* is for at most 8 samples"),
        ({"ray_actor_options": {"num_gpus": 0.5}}, "num_gpus is 0.5, and each rank of a plan needs a whole device"),
    ],
)
def test_options_that_do_not_fit_a_plan_are_refused(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        _plans(one.with_options(plan=_plan(tmp_path), **options))


def test_a_program_with_a_plan_does_not_run_in_the_servers_process(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    with pytest.raises(DefinitionError, match="cannot be in_process"):
        one.with_options(plan=plan, in_process=True)
    nothing: Any = None
    with pytest.raises(DefinitionError, match="serve it on Ray, without --in-process, or without the plan"):
        LocalFleet([one.with_options(plan=plan)], CellSite(config=CellsConfig(), node="here", num_cores=1), nothing, nothing)


def test_a_plan_is_given_to_a_program_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.model_validate({"programs": plans_of(["encode=a=b.plan"])})
    assert settings.programs["encode"].changes == {"plan": str(tmp_path / "a=b.plan")}
    assert plans_of([]) is None
    for wrong in ("encode", "=a.plan", "encode="):
        with pytest.raises(ConfigurationError, match="expected PROGRAM=FILE"):
            plans_of([wrong])
