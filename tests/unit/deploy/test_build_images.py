"""`make images`: which builder it takes, what it asks for before it starts, and what is taken out of images."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.deploy.composed import ROOT

sys.path.insert(0, str(ROOT / "deploy/docker"))
import build_images
import trim

_ANSWER = {"Client": {"Version": "28.2.2"}, "Server": {"Version": "20.10.24"}}


@pytest.mark.parametrize(
    ("version", "has_buildx", "has_buildkit"),
    [("20.10.24+dfsg1", False, True), ("28.2.2", False, False), ("28.2.2", True, True)],
)
def test_buildkit_is_in_old_clients_and_a_plugin_of_new_ones(version: str, has_buildx: bool, has_buildkit: bool) -> None:
    builder = build_images.find_builder(version, has_buildx)
    assert builder.has_buildkit is has_buildkit
    assert ("apt install docker-buildx" in builder.text) is not has_buildkit


def test_without_mounts_the_dockerfile_is_the_same_but_for_them() -> None:
    text = build_images.DOCKERFILE.read_text()
    plain = build_images.without_mounts(text)
    code = [line for line in plain.splitlines() if not line.startswith("#")]
    assert not any("--mount" in line for line in code)
    assert not any(re.match(r"RUN *(\\\\)?$", line) for line in code)
    words = re.sub(r"--mount=\S+", "", text).replace("\\\n", " ").split()
    assert plain.replace("\\\n", " ").split() == words


def test_labels_name_version_and_revision_and_the_source_if_there_is_one() -> None:
    labels = build_images.dynamic_labels("dyorc-1.2.0-py3-none-any.whl", "abc", "")
    assert labels == {"org.opencontainers.image.version": "1.2.0", "org.opencontainers.image.revision": "abc"}
    assert "org.opencontainers.image.source" in build_images.dynamic_labels("dyorc-1.2.0-py3-none-any.whl", "abc", "x")


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a docker client on PATH that does what a line of shell says."""

    def make(line: str) -> None:
        path = tmp_path / "docker"
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(build_images, "_wheel", lambda: "dyorc-1-py3-none-any.whl")
    return make


def _refusal(*arguments: str) -> str:
    with pytest.raises(SystemExit) as refused:
        build_images.main(arguments)
    return str(refused.value)


def test_what_is_missing_is_said_before_anything_is_built(docker: Callable[[str], None], tmp_path: Path) -> None:
    docker("echo '{}'; echo Cannot connect >&2; exit 1")
    assert "no docker engine answers: Cannot connect" in _refusal("core", "--")
    assert "there is no image gpu, only core, cpu, examples, cuda" in _refusal("gpu", "--")
    answers = f"""case "$1" in version) echo '{json.dumps(_ANSWER)}';; info) echo {tmp_path};; buildx) exit 1;; build) exit 9;;"""
    docker(f"{answers} pull) echo no route >&2; exit 1;; image) exit 1;; esac")
    assert re.search("base image python:3.11.* cannot be had: no route; --build-arg BASE", _refusal("core", "--"))
    docker(f"{answers} esac")
    assert "Set TORCH_INDEX" in _refusal("cpu", "--")
    assert "--secret needs BuildKit" in _refusal("cpu", "--", "--secret", "id=pip,src=pip.conf")
    assert "docker build" in _refusal("cpu", "--", "--build-arg", "TORCH_INDEX=x"), "now it builds"


def test_space_is_asked_for_where_the_engine_keeps_images(
    docker: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker(f"""case "$1" in version) echo '{json.dumps(_ANSWER)}';; info) echo {tmp_path};; esac""")
    monkeypatch.setattr(build_images, "SPACE_BYTES", {"core": 10**18})
    assert re.search(rf"{tmp_path} has \d+ GB left, and this needs 1000000000", _refusal("core", "--"))


def test_what_nobody_needs_is_taken_out_and_all_else_stays(tmp_path: Path) -> None:
    packages = tmp_path / "opt/dyorc/lib/python3.11/site-packages"
    gone = ["torch/include/a.h", "torch/bin/test_api", "torch/bin/HashStoreTest", "ray/jars/a.jar", "numpy/_core/tests/test_a.py"]
    kept = [
        "torch/bin/torch_shm_manager",
        "torch/testing/a.py",
        "ray/serve/a.py",
        "numpy/_core/tests/_natype.py",
        "other/tests/test_a.py",
    ]
    for name in gone + kept:
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text("x")
    trim.main(tmp_path)
    assert sorted(str(path.relative_to(packages)) for path in packages.rglob("*") if path.is_file()) == sorted(kept)


def test_lists_of_packages_are_compared_by_their_one_spelling() -> None:
    document = {"components": [{"name": "Typing_Extensions", "version": "4"}]}
    assert build_images.packages_of_sbom(json.dumps(document)) == {"typing-extensions": "4"}


def test_the_command_says_how_it_is_used() -> None:
    command = [sys.executable, build_images.__file__, "--help"]
    assert "build_images.py [core]" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
