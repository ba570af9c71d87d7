"""Which programs share a process on Ray, and what is reserved for it."""

from typing import Any

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc.authoring.program import Program
from dyorc.config import DeploymentConfig, LinkConfig, TransportConfig
from dyorc.errors import DefinitionError
from dyorc.ray_serve.replica_groups import groups_of, refuse_split_groups, settle_groups
from dyorc.ray_serve.replica_specs import ReplicaSpecs
from dyorc.replica.assignment import ForkServerSpec, ProgramSource, ReplicaAssignment, Uplink
from tests.workflows import counting

_ANYWHERE = ProgramSource(folder="/", target="flow.py:flow", program="")


def program(name: str, **options: Any) -> Program:
    @dyorc.program(name=name, **options)
    def same(x: Int[np.ndarray, " batch"]) -> Int[np.ndarray, " batch"]:
        return x

    return same


def specs_of(*programs: Program) -> ReplicaSpecs:
    places = {each: ProgramSource(folder="/", target="flow.py:flow", program=each.name) for each in programs}
    return ReplicaSpecs(places, DeploymentConfig(), ForkServerSpec(folder=""), "here", 1.0)


def test_programs_of_a_group_are_together_and_others_alone() -> None:
    alone, prefill, decode = program("alone"), program("prefill", group="lm"), program("decode", group="lm")
    groups = groups_of([prefill, alone, decode])
    assert [(group.name, group.names) for group in groups] == [("", ["alone"]), ("lm", ["prefill", "decode"])]


def test_a_group_has_as_many_replicas_and_resources_as_its_neediest_program() -> None:
    prefill = program("prefill", group="lm", num_replicas=3, ray_actor_options={"num_gpus": 0.5, "num_cpus": 1})
    decode = program("decode", group="lm", ray_actor_options={"num_cpus": 2, "resources": {"fast": 1}})
    verify = program("verify", group="lm")
    settle_groups([prefill, decode, verify])
    for each in (prefill, decode, verify):
        assert each.options.bounds.max_replicas == each.options.bounds.num_at_start == 3
        assert each.options.ray_actor_options == {"num_gpus": 0.5, "num_cpus": 2, "resources": {"fast": 1}}


def test_a_group_reserves_for_one_process() -> None:
    specs = specs_of(program("prefill", group="lm"), program("alone"), program("decode", group="lm", num_replicas=2))
    assert specs.num_cpus_wanted == specs.num_cpus_at_most == 3
    assert [each.name for each in specs.firsts] == ["alone", "prefill"]
    assert (specs.first_of("decode"), specs.first_of("alone")) == ("prefill", "alone")


def test_the_process_of_a_group_gets_all_its_programs_under_one_name() -> None:
    prefill, decode = program("prefill", group="lm"), program("decode", group="lm")
    uplink = Uplink(address="unix://link", link=LinkConfig(), transport=TransportConfig())
    assignment = specs_of(prefill, decode).assignment(prefill, uplink)
    for copy in (assignment, assignment.for_another(), ReplicaAssignment.from_json(assignment.to_json())):
        (first, one), (second, other) = copy.replicas
        assert (first.program, second.program) == (one.program, other.program) == ("prefill", "decode")
        token = copy.identity.replica_id.removeprefix("prefill#")
        assert (one.replica_id, other.replica_id) == (f"prefill#{token}", f"decode#{token}")
        assert one.process == other.process == f"lm#{token}"
    assert assignment.key != specs_of(prefill).assignment(prefill, uplink).key, "a process without decode is no substitute"


def test_a_program_that_shares_nothing_has_no_process_name() -> None:
    alone = program("alone")
    uplink = Uplink(address="unix://link", link=LinkConfig(), transport=TransportConfig())
    ((_, identity),) = specs_of(alone).assignment(alone, uplink).replicas
    assert identity.process == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_replicas": "auto"}, "replicas of a group are not scaled on Ray"),
        ({"autoscaling_config": {"min_replicas": 1, "max_replicas": 1}}, "without autoscaling_config"),
        ({"ray_actor_options": {"resources": {"fast": 2}}}, "ray_actor_options differ in 'resources'"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], message: str) -> None:
    first = program("prefill", group="lm", ray_actor_options={"resources": {"fast": 1}})
    with pytest.raises(DefinitionError, match=message):
        specs_of(first, program("decode", group="lm", **options))


def test_a_group_is_not_split_over_the_server_and_ray() -> None:
    here, there = program("prefill", group="lm", in_process=True), program("decode", group="lm")
    with pytest.raises(DefinitionError, match="only 'prefill' is declared in_process"):
        refuse_split_groups([here], [there, program("alone")])
    refuse_split_groups([here], [program("alone")])


def test_no_program_is_added_to_processes_that_run() -> None:
    specs = specs_of(counting.begin, counting.count)
    with pytest.raises(DefinitionError, match="restart the server with the new version"):
        specs.add(program("verify", group="counters"), _ANYWHERE)
    alone = program("alone")
    specs.add(alone, _ANYWHERE)
    assert alone in specs.firsts
    specs.remove(alone)
    assert alone not in specs.firsts
