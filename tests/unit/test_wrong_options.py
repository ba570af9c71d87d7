"""Options of the commands with values that no command can use: each is refused by a line that names the option."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from dyorc.cli.main import _app as app  # pyright: ignore[reportPrivateUsage]
from dyorc.cli.server_options import with_scheme
from dyorc.config import GatewayConfig
from dyorc.errors import ConfigurationError, DyOrcError
from dyorc.gateway.tls import refuse_open_address
from loadgen.cli import app as load_generator


def float_options(command: Any, *words: str) -> Iterator[tuple[str, ...]]:
    """Yields the words of each command with an option that takes a float, and the option."""
    for parameter in command.params:
        annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
        if parameter.opts[0].startswith("-") and "float" in str(annotation):
            yield *words, parameter.opts[0]
    for name, below in getattr(command, "commands", {}).items():
        yield from float_options(below, *words, name)


CASES = [
    *((app, words) for words in float_options(get_command(app))),
    *((load_generator, words) for words in float_options(get_command(load_generator))),
]


def test_there_are_such_options() -> None:
    assert len(CASES) > 25


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(("command", "words"), CASES, ids=[" ".join(words) for _, words in CASES])
def test_a_number_that_is_not_finite_is_refused(command: typer.Typer, words: tuple[str, ...], value: str) -> None:
    result = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(command, [*words, value])
    assert result.exit_code == 2
    assert f"Invalid value for '{words[-1]}'" in result.stderr


@pytest.mark.parametrize("option", ["--load", "--rate"])
def test_a_negative_load_is_refused(option: str) -> None:
    result = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["simulate", option, "-1"])
    assert (result.exit_code, "0.001" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://127.0.0.1:99999", "127.0.0.1:0", "http://127.0.0.1:no", "http://", "ftp://x"]
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no server's address, expected http://host:port"):
        with_scheme(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", ""], ids=["with a URL", "without"])
def test_an_empty_variable_of_clients_is_none(url: str) -> None:
    environment = {"DYORC_URL": url, "DYORC_API_KEY": "", "DYORC_CA": ""}
    result = CliRunner(env=environment | {"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["rollback", "classify"])
    assert isinstance(result.exception, DyOrcError), "it asks a server, without a key"


@pytest.mark.parametrize("key", ["two words", "a-secret\n", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_by_the_name_of_its_place_and_not_shown(key: str) -> None:
    of_variable = CliRunner(env={"DYORC_API_KEY": key, "COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["status"])
    of_option = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["status", "--key", key])
    for result, place in ((of_variable, "DYORC_API_KEY"), (of_option, "--key")):
        assert result.exit_code == 2
        assert f"Invalid value for {place}: an API key has visible ASCII characters alone" in result.stderr
        assert key.strip() not in result.stderr


def test_an_empty_path_of_authorities_is_refused() -> None:
    result = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["status", "--ca", ""])
    assert (result.exit_code, "'--ca'" in result.stderr, "it is empty" in result.stderr) == (2, True, True)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("", r"gateway.host \(--host\) is empty, expected an address"),
        ("nosuch.invalid", r"gateway.host \(--host\) is 'nosuch.invalid', expected an address or a name"),
        ("0.0.0.0", "'0.0.0.0' is not a loopback address"),
    ],
)
def test_a_host_that_cannot_be_served_on(host: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        refuse_open_address(GatewayConfig(host=host))


def test_the_port_for_grpc_after_the_last_is_a_free_one() -> None:
    assert GatewayConfig(port=65534).grpc_port_to_bind == 65535
    assert GatewayConfig(port=65535).grpc_port_to_bind == 0
