"""When the test of containers is skipped, and when it fails: an engine that hangs before its first container is none."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compose import images
from tests.compose.cluster import Cluster
from tests.compose.engine import Engine, NoEngineError


@pytest.fixture
def engine_of(tmp_path: Path) -> Callable[[str], Engine]:
    """Returns an engine whose commands do what a line of shell says."""

    def make(line: str) -> Engine:
        for name in ("docker", "docker-compose"):
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{line}\n")
            path.chmod(0o755)
        return Engine({"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}, "")

    return make


def test_an_engine_that_hangs_or_runs_nothing_is_none_until_there_are_images(
    engine_of: Callable[[str], Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "import_base", lambda engine, tag: engine.docker("import"))
    monkeypatch.setattr(images, "_LIMIT_S", 0.1)
    with pytest.raises(NoEngineError, match=r"the engine hangs: Command .*'docker', 'import'.* timed out"):
        images.build(engine_of("exec sleep 1000"), tmp_path)
    monkeypatch.setattr(images, "_LIMIT_S", 240.0)
    with pytest.raises(NoEngineError, match="the engine runs no containers: no cgroups"):
        images.build(engine_of('[ "$1" = import ] || { echo no cgroups >&2; exit 125; }'), tmp_path)
    with pytest.raises(AssertionError, match="docker import\\nwrong"):
        images.build(engine_of("echo wrong >&2; exit 1"), tmp_path)


def test_commands_to_a_cluster_fail_all_together_in_time(engine_of: Callable[[str], Engine]) -> None:
    cluster = Cluster(engine_of("exec sleep 1000").within(0.1), [], {})
    with pytest.raises(subprocess.TimeoutExpired):
        cluster.compose("ps")
    with pytest.raises(AssertionError, match=r"not after 0\.0 s: nothing"):
        cluster.wait_until(lambda: False, "nothing")
