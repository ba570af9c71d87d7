"""After versions were deployed, the next leader of a group asks Serve for the same: no replica is replaced or ended."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dyorc.config import CellsConfig, DeploymentConfig, LinkConfig, Settings, TransportConfig
from dyorc.deployment.state import DeploymentState
from dyorc.protocol.deployment_changes import Deploy
from dyorc.ray_serve.persistent_applications import PersistentApplications
from dyorc.ray_serve.replica_specs import ReplicaSpecs
from dyorc.ray_serve.serve_replicas import ServeReplicas
from dyorc.replica.assignment import ForkServerSpec, Uplink
from dyorc.server.program_loading import LoadedTargets, load_targets, run_deployer, run_programs
from tests.e2e.updates import App

pytestmark = pytest.mark.anyio

_TURNS = "turns_of_imports"
_CELLS_TURN_S = 0.004
_NOTES_TURNS = f"""
import sys
sys.{_TURNS} = [*getattr(sys, {_TURNS!r}, []), sys.getswitchinterval()]
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    yield App(tmp_path)
    for name in ("app", "nets"):
        sys.modules.pop(name, None)


def plans_of(what: LoadedTargets, code_on_disk: str) -> dict[str, str]:
    """Returns what a leader with this code on its disk tells Serve of its programs."""
    uplink = Uplink(address="", link=LinkConfig(), transport=TransportConfig())
    plans = ReplicaSpecs(what.places, DeploymentConfig(), ForkServerSpec(folder=""), None, 1.0)
    return ServeReplicas(plans, DeploymentConfig(), uplink, lasting=PersistentApplications("default", code_on_disk, uplink)).plans


async def test_the_next_leader_asks_for_what_was_deployed_and_for_shared_programs_as_they_are(app: App) -> None:
    settings, notes = Settings(cells=CellsConfig(switch_interval_s=_CELLS_TURN_S)), list[bytes]()

    async def keep(text: bytes) -> None:
        notes.append(text)

    with load_targets([app.target], settings) as what:
        before = plans_of(what, "of the first")
        async with (
            run_programs(what, settings, None, None, without_ray=True) as running,
            run_deployer(what, running, settings, lambda: lambda: True, None, keep) as deployer,
        ):
            app.write(2, lambda text: text + _NOTES_TURNS)
            await deployer.change(Deploy(target=app.target))
    app.write(3)  # not deployed
    with load_targets([app.target], settings, DeploymentState.of_json(notes[-1])) as again:
        after = plans_of(again, "of the second")
    while_serving_s, _at_start_s = vars(sys).pop(_TURNS)
    assert while_serving_s < _CELLS_TURN_S, "the event loop does not wait long while code is imported"
    assert set(before) == {"double", "plus"}
    assert set(after) == {"double", "plus@2"}, "Serve keeps these, and ends the others"
    assert after["double"] == before["double"], "both versions share it, so its replicas stay"
