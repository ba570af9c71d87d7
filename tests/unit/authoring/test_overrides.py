"""Options of programs from outside their code."""

from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.overrides import override, override_programs
from dyorc.authoring.program import Program
from dyorc.config import DeploymentConfig, LinkConfig, ProgramOverrides, TransportConfig
from dyorc.errors import DefinitionError
from dyorc.ray_serve.replica_specs import ReplicaSpecs
from dyorc.replica.assignment import ForkServerSpec, Identity, ProgramSource, ReplicaAssignment, Uplink


def _program(**options: Any) -> Program:
    @dyorc.program(name="large", **options)
    def large(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
        return x

    return large


def test_options_are_replaced_in_the_very_program_and_come_back() -> None:
    program = _program(max_batch_size=8, ray_actor_options={"num_cpus": 2, "resources": {"a": 1}})
    declared = program.options
    with override_programs([program], {"large": {"max_batch_size": 16, "num_gpus": 0.5}}):
        assert program.options.max_batch_size == 16
        assert program.options.ray_actor_options == {"num_cpus": 2, "resources": {"a": 1}, "num_gpus": 0.5}
    assert program.options is declared
    assert program.overrides == {}


def test_the_room_for_residents_is_set_from_outside() -> None:
    changes = ProgramOverrides(max_resident_bytes=4096).changes
    assert override(_program(max_resident_bytes=2**30), changes).options.max_resident_bytes == 4096


def test_a_number_of_replicas_replaces_autoscaling_and_the_other_way() -> None:
    scaled = override(_program(autoscaling_config={"min_replicas": 0, "max_replicas": 4}), {"num_replicas": 3})
    assert (scaled.options.bounds.min_warm, scaled.options.bounds.max_replicas) == (3, 3)
    fixed = override(_program(num_replicas=3), {"autoscaling_config": {"max_replicas": 7}})
    assert (fixed.options.bounds.min_warm, fixed.options.bounds.max_replicas) == (1, 7)


def test_an_unknown_program_is_refused_with_the_names() -> None:
    with pytest.raises(DefinitionError, match=r"unknown program 'larg' in the settings; known programs: \['large'\]"):  # noqa: SIM117
        with override_programs([_program()], {"larg": {"max_batch_size": 16}}):
            pass


def test_an_error_leaves_all_programs_as_they_were() -> None:
    good, bad = _program(), _program(batched=True).with_options(name="bad")
    with pytest.raises(DefinitionError, match=r"'bad', as set from outside its code: execution_timeout_s is -1"):  # noqa: SIM117
        with override_programs([good, bad], {"large": {"max_batch_size": 16}, "bad": {"execution_timeout_s": -1}}):
            pass
    assert good.options.max_batch_size == 32


def test_a_replica_is_told_of_them() -> None:
    program = override(_program(), {"execution_timeout_s": 5.0, "ray_actor_options": {"resources": {"a": 1}}})
    place = ProgramSource(folder="", target="flow.py:large", program="large")
    plans = ReplicaSpecs({program: place}, DeploymentConfig(), ForkServerSpec(folder=""), "node", 1.0)
    told = ReplicaAssignment(
        source=plans.source(program), identity=Identity(replica_id="", program="large", node=""), num_threads=1, graceful_s=1.0,
        uplink=Uplink(address="", link=LinkConfig(), transport=TransportConfig()),
    )  # fmt: skip
    overrides = ReplicaAssignment.from_json(told.to_json()).source.overrides
    assert override(_program(), overrides).options == program.options
