"""Flags before environment before file before defaults, and where each value comes from."""

from pathlib import Path

import pytest

from dyorc.config import Settings
from dyorc.errors import ConfigurationError
from dyorc.settings.settings_reader import read
from dyorc.settings.settings_text import print_in_force


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "dyorc.toml"
    path.write_text("workflows = ['a.py:x', 'package.module:y']\n[gateway]\nport = 1\nhost = 'from-file'\nkeys_file = 'k.toml'\n")
    return path


def test_without_a_file_there_are_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reading = read()
    assert reading.settings == Settings()
    assert reading.file is None
    assert reading.place(("gateway", "port")) == "default"


def test_flags_come_before_the_environment_before_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read().settings.gateway.port == 1
    monkeypatch.setenv("DYORC_GATEWAY__PORT", "2")
    assert read().settings.gateway.port == 2
    reading = read(None, {"gateway.port": 3, "gateway.grpc_port": None})
    assert reading.settings.gateway.port == 3
    assert reading.settings.gateway.host == "from-file"
    assert reading.place(("gateway", "port")) == "--port"
    assert reading.place(("gateway", "host")) == "dyorc.toml:4"
    assert reading.place(("gateway", "grpc")) == "default"
    assert read().place(("gateway", "port")) == "DYORC_GATEWAY__PORT"


def test_a_whole_section_may_come_as_json_and_leaves_the_rest(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYORC_GATEWAY", '{"host": "from-environment"}')
    reading = read()
    assert reading.settings.gateway.host == "from-environment"
    assert reading.settings.gateway.port == 1
    assert reading.place(("gateway", "host")) == "DYORC_GATEWAY"


def test_paths_are_relative_to_the_file(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    settings = read(Path("../dyorc.toml")).settings
    assert settings.workflows == (f"{tmp_path}/a.py:x", "package.module:y")
    assert settings.gateway.keys_file == f"{tmp_path}/k.toml"
    monkeypatch.setenv("DYORC_GATEWAY__KEYS_FILE", "here.toml")
    assert read(Path("../dyorc.toml")).settings.gateway.keys_file == "here.toml"


def test_the_environment_names_a_file(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("in_process = true")
    monkeypatch.setenv("DYORC_CONFIG", str(other))
    assert read().settings.in_process
    assert read().file == other
    assert not read(file).settings.in_process
    monkeypatch.setenv("DYORC_CONFIG", "missing.toml")
    with pytest.raises(ConfigurationError, match=r"^configuration file missing\.toml cannot be read: .*No such file"):
        read()


def test_options_of_programs_come_from_file_and_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("[programs.large]\nmax_batch_size = 4\nnum_gpus = 0.5\n")
    monkeypatch.setenv("DYORC_PROGRAMS__LARGE__MAX_BATCH_SIZE", "16")
    reading = read()
    assert reading.settings.programs["large"].changes == {"max_batch_size": 16, "num_gpus": 0.5}
    assert reading.place(("programs", "large", "num_gpus")) == "dyorc.toml:3"
    assert reading.place(("programs", "large", "max_batch_size")) == "DYORC_PROGRAMS__LARGE__MAX_BATCH_SIZE"


def test_settings_survive_the_way_to_a_cell(file: Path) -> None:
    file.write_text(
        "[cells]\nnum_cells = 'auto'\n[programs.large]\nautoscaling_config = { max_replicas = 3 }\nin_process = true\n"
    )
    settings = read().settings
    assert Settings(**settings.model_dump(mode="json")) == settings


def test_secrets_are_not_shown(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("store = 'redis://:hidden@host/0'\n[jobs]\nwebhook_secret = 'hidden'\nwebhook_hosts = ['a']\n")
    print_in_force(read(), is_all=False)
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        ["store", "=", '"***"', "#", "dyorc.toml:1"],
        ["jobs.webhook_hosts", "=", '["a"]', "#", "dyorc.toml:4"],
        ["jobs.webhook_secret", "=", '"***"', "#", "dyorc.toml:3"],
    ]
