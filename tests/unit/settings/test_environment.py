"""Settings from the environment: unknown names and wrong values are refused."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dyorc.errors import ConfigurationError
from dyorc.settings.settings_reader import read_settings
from dyorc.settings.settings_sources import OF_COMPOSE, PORTS_OF_COMPOSE, environment_layer

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DYORC_GATWAY__KEYS_FILE", "DYORC_GATEWAY__KEYS_FILE"),
        ("DYORC_GATEWAY__KEY_FILE", "DYORC_GATEWAY__KEYS_FILE"),
        ("dyorc_gateway__key_file", "DYORC_GATEWAY__KEYS_FILE"),
        ("DYORC_KEYS_FILE", "DYORC_CLUSTER__KEYS_FILE or DYORC_GATEWAY__KEYS_FILE"),
        ("DYORC_ENGINE__MAX_DEPTH", "DYORC_ENGINE__SPECULATION__MAX_DEPTH"),
        ("DYORC_STROE", "DYORC_STORE"),
    ],
)
def test_an_unknown_name_is_refused_and_the_nearest_suggested(name: str, meant: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        environment_layer({name: "1"})
    assert str(caught.value) == f"there is no setting {name} (did you mean {meant}?); docs/reference/settings.md lists all"


def test_variables_of_clients_and_of_the_compose_files_do_not_disturb_a_server() -> None:
    files = [*ROOT.glob("docker-compose*.yml"), *(ROOT / "services").rglob("*.yml")]
    named = {name for path in files for name in re.findall(r"\$\{(DYORC_[A-Z_0-9]+)", path.read_text())}
    assert named == OF_COMPOSE | PORTS_OF_COMPOSE.keys() | {"DYORC_WORKFLOWS"}
    others = dict.fromkeys([*OF_COMPOSE, "DYORC_URL", "DYORC_API_KEY", "DYORC_CA"], "1")
    assert environment_layer(others).values == {}


@pytest.mark.parametrize("name", sorted(PORTS_OF_COMPOSE))
def test_a_port_of_the_compose_files_is_refused_with_the_setting_that_may_be_meant(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} is a variable of docker-compose.yml .* or set DYORC_GATEWAY__"):
        environment_layer({name: "1"})


def test_a_name_unlike_any_setting_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^there is no setting DYORC_BOGUS; docs/reference/settings.md lists all$"):
        environment_layer({"DYORC_BOGUS": "1"})


@pytest.mark.parametrize(
    "environment",
    [
        {"DYORC_SERVICE_HOST": "10.0.0.1", "DYORC_SERVICE_PORT": "8000", "DYORC_SERVICE_PORT_HTTP": "8000"},
        {
            "DYORC_PORT": "tcp://10.0.0.1:8000",
            "DYORC_PORT_8000_TCP": "tcp://10.0.0.1:8000",
            "DYORC_PORT_8000_TCP_ADDR": "10.0.0.1",
        },
        {"DYORC_SEARCH_PORT": "tcp://10.0.0.1:8000", "DYORC_SEARCH_PORT_8000_TCP_PROTO": "tcp"},
        {
            "DYORC_NUM_THREADS": "2",
            "DYORC_GATEWAY__PORT": "1",
            "DYORC_GATEWAY": "{}",
            "dyorc_store": "",
            "PATH": "",
            "DYORCHID": "1",
        },
    ],
)
def test_settings_and_variables_of_kubernetes_are_accepted(environment: dict[str, str]) -> None:
    environment_layer(environment)


def test_a_wrong_value_is_one_line_that_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYORC_GATEWAY__PORT", "99999")
    with pytest.raises(ConfigurationError, match=r"^DYORC_GATEWAY__PORT is '99999', expected a number [^\n]* 65535$"):
        read_settings()
    monkeypatch.setenv("DYORC_GATEWAY__PORT", "1")
    monkeypatch.setenv("DYORC_LINK", "3")
    with pytest.raises(ConfigurationError, match=r"^DYORC_LINK is 3, expected a table$"):
        read_settings()
    monkeypatch.setenv("DYORC_JOBS__WEBHOOK_HOSTS", "example.com")
    with pytest.raises(ConfigurationError) as caught:
        read_settings()
    assert str(caught.value) == ("""DYORC_JOBS__WEBHOOK_HOSTS is 'example.com', expected a list as JSON, such as ["a", "b"]""")
    monkeypatch.delenv("DYORC_JOBS__WEBHOOK_HOSTS")
    monkeypatch.delenv("DYORC_LINK")
    monkeypatch.setenv("DYORC_GATEWAY__SHOWN_HEADERS", '"x-user"')
    with pytest.raises(ConfigurationError, match=r"^DYORC_GATEWAY__SHOWN_HEADERS is 'x-user', expected an array$"):
        read_settings()


def test_the_command_line_refuses_them_before_it_starts_anything() -> None:
    command = [sys.executable, "-m", "dyorc.cli.main", "serve", "nothing.py:nothing"]
    found = subprocess.run(command, env={**os.environ, "DYORC_BOGUS": "1"}, capture_output=True, text=True, timeout=120)
    assert found.returncode == 1
    assert found.stderr == "dyorc: there is no setting DYORC_BOGUS; docs/reference/settings.md lists all\n"
