"""What images are built from: the Dockerfile keeps the rules that its linters know, and its scripts do what they say."""

import re
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.unit.deploy.composed import ROOT

_FOLDER = ROOT / "deploy" / "docker"
_TEXT = (_FOLDER / "Dockerfile").read_text()
_SCRIPTS = ["deploy/docker/healthy", "services/gateway/at-address", "services/keys/make-secrets", "services/orchestrator/on-ray"]


def _instructions(kind: str) -> list[str]:
    """Returns the arguments of all instructions of a kind, each as one line."""
    whole = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", _TEXT, flags=re.MULTILINE))
    return re.findall(rf"^{kind} (.*)$", whole, re.MULTILINE)


def _defaults() -> dict[str, str]:
    return dict(each.split("=", 1) for each in _instructions("ARG") if "=" in each)


def test_every_stage_is_built_on_another_or_on_what_is_asked_for() -> None:
    known = {"scratch"} | {f"${{{name}}}" for name in _defaults()}
    for each in _instructions("FROM"):
        base, _, stage = each.partition(" AS ")
        assert base in known
        assert stage, "stages have names"
        known.add(stage)
    assert {"core", "cpu", "examples", "cuda"} <= known
    assert {name for name in _defaults().values() if name.startswith(("new-", "no-"))} <= known
    for each in re.findall(r"--from=(\S+)", "".join(_instructions("COPY"))):
        assert each in known


def test_the_base_is_pinned() -> None:
    repository, _, tag = _defaults()["BASE"].partition(":")
    assert repository == "python"
    assert re.match(r"3\.11\.\d+-slim-\w+$", tag)


def test_it_runs_as_nobody_in_particular_and_below_an_init() -> None:
    assert _instructions("USER") == ["10001:10001"]
    assert _instructions("ENTRYPOINT") == ['["tini", "--"]']
    assert len(_instructions("HEALTHCHECK")) == 1
    assert not _instructions("ADD")
    assert not [each for each in _instructions("RUN") if "sudo" in each or "chmod" in each]


def test_packages_leave_nothing_behind_but_themselves() -> None:
    for each in _instructions("RUN"):
        if "apt-get install" in each:
            assert "apt-get update &&" in each
            assert "--no-install-recommends" in each
            assert "rm -rf /var/lib/apt/lists/*" in each
        if "/pip --python" in each and " install " in each:
            assert "--mount=type=cache,target=/root/.cache/pip" in each
            assert re.search(r"--root /(\w+) .*trim.py /\1$", each), "what a stage adds lies apart, without what nobody needs"


def test_every_image_says_what_it_is() -> None:
    for target in ("core", "cpu", "examples", "cuda"):
        _, _, stage = _TEXT.partition(f" AS {target}\n")
        labels = stage.partition("\nFROM ")[0]
        for name in ("title", "description", "licenses", "base.name"):
            assert f"org.opencontainers.image.{name}=" in labels, f"{target}: {name}"


def test_settings_of_an_index_come_from_outside() -> None:
    assert "--mount=type=secret,id=pip,target=/etc/pip.conf" in _TEXT
    assert "://" not in _TEXT, "no index stands in it"
    assert not re.search(r"trusted-host|index-url|proxy", _TEXT, re.IGNORECASE)


def test_all_that_is_copied_reaches_the_builder() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_in = [rule.removeprefix("!") for rule in rules[1:]]
    for each in _instructions("COPY"):
        if "--from=" not in each:
            for source in each.split()[:-1]:
                assert any(fnmatch(source, rule) or source == rule for rule in let_in)
                assert source.startswith("dist/") or (ROOT / source).is_file()


@pytest.mark.parametrize("path", _SCRIPTS)
def test_scripts_are_copied_stop_at_errors_and_parse(path: str) -> None:
    script = ROOT / path
    assert f"{path} " in _TEXT
    assert script.stat().st_mode & 0o111
    assert "\nset -euo pipefail\n" in script.read_text()
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


_METADATA = """Metadata-Version: 2.4
Name: some
Version: 1
Provides-Extra: demo
Provides-Extra: traces
Provides-Extra: all
Provides-Extra: dev
Requires-Dist: numpy>=2.1
Requires-Dist: ray[serve]==2.60.*
Requires-Dist: old; python_version < '3.9'
Requires-Dist: scikit-learn>=1.5; extra == 'demo'
Requires-Dist: fast; (python_version > '3.9') and extra == 'traces'
Requires-Dist: sdk; extra == 'traces'
Requires-Dist: some[demo,traces]; extra == 'all'
Requires-Dist: some[all]; extra == 'dev'
Requires-Dist: tool; extra == 'dev'

What it does.
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "some-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("some/__init__.py", "")
        archive.writestr("some-1.dist-info/METADATA", _METADATA)
    return path


def _requirements(wheel: Path, extras: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(_FOLDER / "requirements_of.py"), str(wheel), extras]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_requirements_are_those_of_the_wheel_and_its_extras(wheel: Path) -> None:
    always = ["numpy>=2.1", "ray[serve]==2.60.*", "old; python_version < '3.9'"]
    assert _requirements(wheel, "").stdout.splitlines() == always
    assert _requirements(wheel, "demo").stdout.splitlines() == [*always, "scikit-learn>=1.5"]
    assert _requirements(wheel, "traces").stdout.splitlines() == [*always, "fast; (python_version > '3.9')", "sdk"]
    everything = [*always, "scikit-learn>=1.5", "fast; (python_version > '3.9')", "sdk"]
    assert _requirements(wheel, "all").stdout.splitlines() == everything
    assert _requirements(wheel, "dev,demo").stdout.splitlines() == [*everything, "tool"]


def test_an_extra_that_does_not_exist_is_refused_by_name(wheel: Path) -> None:
    done = _requirements(wheel, "demo,trace")
    assert done.returncode == 1
    assert "has no extra trace" in done.stderr
