"""The gateway's end of changes of what is deployed, over several groups."""

import asyncio

import pytest

from dyorc.cluster.control_client import ControlClient, GroupControl
from dyorc.errors import InvalidInputError, NotReadyError, UnknownModelError
from dyorc.protocol.deployment_changes import Deploy, Rollback

_DEPLOYED = {"versions": {"1": {"target": "pets.py:classify"}}}


def _groups() -> dict[str, GroupControl]:
    return {name: GroupControl(name, lambda message: None, lambda: False) for name in ("cats", "dogs")}


def test_a_model_of_a_group_that_was_not_heard_of_is_not_known_yet() -> None:
    groups = _groups()
    groups["cats"].report({"classify": _DEPLOYED})
    client = ControlClient(groups)
    with pytest.raises(NotReadyError, match=r"'bark' is not known yet: the orchestrators of \['dogs'\]"):
        asyncio.run(client.change(Rollback(model="bark")))
    with pytest.raises(NotReadyError, match="'bark' is not known yet"):
        asyncio.run(client.change(Deploy(target="other.py:bark", model="bark")))


def test_a_model_that_no_group_has_is_unknown_once_all_were_heard_of() -> None:
    groups = _groups()
    groups["cats"].report({"classify": _DEPLOYED})
    groups["dogs"].report({})
    client = ControlClient(groups)
    with pytest.raises(UnknownModelError, match="nothing is deployed as 'bark'"):
        asyncio.run(client.change(Rollback(model="bark")))
    with pytest.raises(InvalidInputError, match="choose one with --group"):
        asyncio.run(client.change(Deploy(target="other.py:bark", model="bark")))


def test_a_change_goes_to_the_group_that_has_the_model_though_others_were_not_heard_of() -> None:
    groups = _groups()
    groups["dogs"].report({"classify": _DEPLOYED})
    with pytest.raises(NotReadyError, match="group 'dogs' has no leader now"):
        asyncio.run(ControlClient(groups).change(Rollback(model="classify")))
