"""Which programs share a process on Ray, and what is reserved for it."""

from dataclasses import replace
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
from dyorc.scaling.model import Bounds
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
    assert (specs.group_of("decode"), specs.group_of("alone")) == (["prefill", "decode"], ["alone"])


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


def test_the_process_of_a_new_version_serves_under_the_names_of_that_version() -> None:
    """Under their own names, its replicas would take the calls of the old version."""
    prefill, decode = program("prefill-2", group="lm2"), program("decode-2", group="lm2")
    places = {
        each: ProgramSource(folder="/", target="flow.py:flow", program=own, served_as=each.name)
        for own, each in (("prefill", prefill), ("decode", decode))
    }
    specs = ReplicaSpecs(places, DeploymentConfig(), ForkServerSpec(folder=""), "here", 1.0)
    uplink = Uplink(address="unix://link", link=LinkConfig(), transport=TransportConfig())
    assignment = specs.assignment(prefill, uplink)
    for copy in (assignment, assignment.for_another()):
        assert [identity.program for _, identity in copy.replicas] == ["prefill-2", "decode-2"]
        assert [identity.replica_id.partition("#")[0] for _, identity in copy.replicas] == ["prefill-2", "decode-2"]


def test_a_program_that_shares_nothing_has_no_process_name() -> None:
    alone = program("alone")
    uplink = Uplink(address="unix://link", link=LinkConfig(), transport=TransportConfig())
    ((_, identity),) = specs_of(alone).assignment(alone, uplink).replicas
    assert identity.process == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
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


def test_the_programs_of_a_group_have_the_widest_bounds_that_any_declares_and_their_own_limits_of_calls() -> None:
    wide = {"min_replicas": 1, "max_replicas": 4, "downscale_delay_s": 5, "target_ongoing_requests": 2}
    slow = {"min_replicas": 0, "max_replicas": 2, "initial_replicas": 2, "downscale_delay_s": 60}
    prefill = program("prefill", group="lm", autoscaling_config=wide)
    decode = program("decode", group="lm", autoscaling_config=slow)
    verify = program("verify", group="lm")
    settle_groups([prefill, decode, verify])
    expected = Bounds(min_warm=1, max_replicas=4, initial_warm=2, downscale_delay_s=60)
    assert prefill.options.bounds == replace(expected, target_calls=2)
    assert decode.options.bounds == verify.options.bounds == expected


def test_a_group_may_go_cold_if_only_some_of_its_programs_say_so() -> None:
    prefill = program("prefill", group="lm", autoscaling_config={"min_replicas": 0, "max_replicas": 2})
    decode = program("decode", group="lm")
    settle_groups([prefill, decode])
    assert (decode.options.bounds.min_warm, decode.options.bounds.max_replicas) == (0, 2)


def test_a_group_ends_with_its_last_program_and_keeps_its_processes_until_then() -> None:
    specs = specs_of(counting.begin, counting.count)
    alone, prefill, decode = program("alone"), program("prefill", group="lm2"), program("decode", group="lm2")
    assert specs.add({alone: _ANYWHERE}) == [alone]
    assert specs.add({prefill: _ANYWHERE, decode: _ANYWHERE}) == [prefill]
    assert specs.group_of("decode") == ["prefill", "decode"]
    assert specs.leave(prefill) is None
    assert specs.companions(prefill)[0] == "lm2", "its processes may have to be started again"
    assert specs.leave(decode) is prefill
    specs.remove(prefill)
    assert specs.leave(alone) is alone
    specs.remove(alone)
    assert specs.firsts == [counting.begin]


def test_a_program_of_the_servers_own_process_leaves_without_processes_to_end() -> None:
    specs = specs_of(program("elsewhere"))
    assert specs.leave(program("here", in_process=True)) is None
    assert specs.firsts == list(specs.programs)
