"""Which programs of a group a new version shares with others, and what its groups are called."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Int

import dyorc
from dyorc.authoring.bundles import Bundle
from dyorc.authoring.program import Program
from dyorc.deployment.loading_versions import LoadedVersion, declared_groups, groups_for, names_for, rename_programs
from dyorc.deployment.state import DeploymentState, ModelHistory, Version

_BUNDLE = Bundle("flow.py:flow", "flow")


def program(name: str, group: str | None) -> Program:
    @dyorc.program(name=name, group=group)
    def same(x: Int[np.ndarray, " batch"]) -> Int[np.ndarray, " batch"]:
        return x

    return same


def loaded(version: str, prints: Mapping[str, str], known: list[LoadedVersion]) -> LoadedVersion:
    """Loads a version whose programs have these fingerprints. All but `alone` are of the group `lm`."""
    programs = [program(own, None if own == "alone" else "lm") for own in prints]

    @dyorc.workflow(programs=programs)
    async def flow(x: Int[np.ndarray, ""]) -> Int[np.ndarray, ""]:
        return programs[0](x)

    used = {each.name for other in known for each in other.programs.values()}
    used_groups = {each.group for other in known for each in other.programs.values()}
    group_of = declared_groups(flow)
    names = names_for(prints, version, known, used, used, group_of)
    groups = groups_for(names, version, known, used_groups, group_of)
    return rename_programs(flow, Version(model="flow", version=version, bundle=_BUNDLE, names=names, groups=groups), prints, None)


def placed(version: LoadedVersion) -> dict[str, tuple[str, str]]:
    """Returns the unique name of each program, and of its group."""
    return {own: (each.name, each.group) for own, each in version.programs.items()}


def test_a_version_that_changes_one_program_of_a_group_gets_all_of_it_anew() -> None:
    first = loaded("1", {"prefill": "a", "decode": "b", "alone": "c"}, [])
    assert placed(first) == {"prefill": ("prefill", "lm"), "decode": ("decode", "lm"), "alone": ("alone", "alone")}
    second = loaded("2", {"prefill": "changed", "decode": "b", "alone": "c"}, [first])
    assert placed(second) == {"prefill": ("prefill@2", "lm@2"), "decode": ("decode@2", "lm@2"), "alone": ("alone", "alone")}
    third = loaded("3", {"prefill": "a", "decode": "b", "alone": "changed"}, [second, first])
    assert placed(third) == {"prefill": ("prefill", "lm"), "decode": ("decode", "lm"), "alone": ("alone@3", "alone@3")}


def test_programs_of_two_processes_do_not_make_a_group() -> None:
    first = loaded("1", {"prefill": "a", "decode": "b"}, [])
    second = loaded("2", {"prefill": "c", "decode": "d"}, [first])
    third = loaded("3", {"prefill": "a", "decode": "d"}, [first, second])
    assert placed(third) == {"prefill": ("prefill@3", "lm@3"), "decode": ("decode@3", "lm@3")}


def test_a_version_shares_a_group_of_which_it_needs_a_part_and_joins_none_with_another_program() -> None:
    first = loaded("1", {"prefill": "a", "decode": "b"}, [])
    assert placed(loaded("2", {"decode": "b"}, [first])) == {"decode": ("decode", "lm")}
    more = loaded("2", {"decode": "b", "verify": "c"}, [first])
    assert placed(more) == {"decode": ("decode@2", "lm@2"), "verify": ("verify", "lm@2")}


def test_groups_keep_their_names_in_the_store() -> None:
    first = loaded("1", {"prefill": "a"}, [])
    second = loaded("2", {"prefill": "b"}, [first])
    record = DeploymentState(1, {"flow": ModelHistory.starting_with(second.as_version)})
    stored = DeploymentState.of_json(record.to_json())
    assert stored.groups() == {"lm@2"}
    (version,) = stored.lines["flow"].versions.values()
    again = program("prefill", "lm")

    @dyorc.workflow(programs=[again])
    async def flow(x: Int[np.ndarray, ""]) -> Int[np.ndarray, ""]:
        return again(x)

    assert placed(rename_programs(flow, version, {"prefill": "b"}, None)) == {"prefill": ("prefill@2", "lm@2")}
