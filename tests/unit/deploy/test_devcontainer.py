"""The development container: what it names is what this repository has. It has not been started here."""

import json
import re

from tests.unit.deploy.composed import ROOT

_FILE = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())


def test_it_is_made_by_the_makefile_and_forwards_the_servers_ports() -> None:
    target = _FILE["postCreateCommand"].removeprefix("make ")
    assert f"\n{target.replace('.venv', '$(VENV)')}:" in (ROOT / "Makefile").read_text()
    assert _FILE["forwardPorts"] == [8000, 8001]
    assert _FILE["portsAttributes"].keys() == {str(port) for port in _FILE["forwardPorts"]}


def test_its_image_is_public_and_has_the_python_of_the_others() -> None:
    python = re.search(r"^ARG BASE=python:(3\.\d+)", (ROOT / "deploy/docker/Dockerfile").read_text(), re.MULTILINE)
    assert python is not None
    assert _FILE["image"].rpartition(":")[2].startswith(python[1] + "-")
