import sys

import pytest
from typer.testing import CliRunner

from dyorc.cli.main import _app
from dyorc.errors import ConfigurationError


def test_dyorc_load_takes_the_load_generators_commands_and_options() -> None:
    result = CliRunner().invoke(_app, ["load", "run", "--help"])
    assert result.exit_code == 0
    assert "dyorc load run" in result.output
    assert "--rate" in result.output


def test_dyorc_load_without_the_load_generator_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "loadgen.cli", None)
    result = CliRunner().invoke(_app, ["load", "run"])
    assert isinstance(result.exception, ConfigurationError)
    assert "is not installed" in str(result.exception)
