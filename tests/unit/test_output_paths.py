"""Commands refuse a path for their results at once, not after the work: then all would be lost."""

import argparse
import importlib
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.output_paths import output_file, output_folder
from dyorc.cli.simulate import app as simulate
from loadgen.cli import app as loadgen

_ROOT = Path(__file__).parents[2]
_OPTION = re.compile(r"add_argument\(\s*\"(--[\w-]+)\"[^)]*?\btype=Path\b", re.DOTALL)
_READ = {"--autoparallel", "--case", "--costs", "--input", "--root", "--sailor", "--steps", "--wheel"}
"""Options of tests and benchmarks whose files are read, or lie below a folder that is."""


def test_every_option_of_a_test_or_benchmark_that_names_an_output_is_checked() -> None:
    paths = [path for folder in ("tests", "benchmarks") for path in (_ROOT / folder).rglob("*.py") if path != Path(__file__)]
    outputs = {(str(path.relative_to(_ROOT)), option) for path in paths for option in _OPTION.findall(path.read_text())}
    assert {option for _, option in outputs} >= _READ
    assert {each for each in outputs if each[1] not in _READ} == set(), "expected type=output_file or output_folder"


@pytest.mark.parametrize(
    ("module", "option"),
    [
        ("tests.chaos.histories", "--keep"),
        ("tests.chaos.history_storm", "--keep"),
        ("tests.chaos.services_storm", "--keep"),
        ("tests.soak.__main__", "--samples"),
        ("tests.storm.__main__", "--card"),
        ("benchmarks.focused.order", "--page"),
        ("benchmarks.table.main", "--docs"),
        ("benchmarks.table.main", "--out"),
    ],
)
def test_a_command_refuses_a_path_below_a_file(
    module: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "argv", ["command", option, str(tmp_path / "file" / "results")])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(module).main()
    assert ended.value.code == 2
    assert f"argument {option}: " in (said := capsys.readouterr().err)
    assert "cannot be a folder for results" in said


def test_a_folder_is_made(tmp_path: Path) -> None:
    assert output_folder(str(tmp_path / "a" / "b")).is_dir()
    assert output_folder(str(tmp_path / "a" / "b")) == tmp_path / "a" / "b"


def test_the_folder_of_a_file_is_made_and_the_file_is_not(tmp_path: Path) -> None:
    path = output_file(str(tmp_path / "a" / "figures.json"))
    assert path.parent.is_dir()
    assert not path.exists()


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is a folder, expected a file"):
        output_file(str(tmp_path))


_LOAD = ["--arrivals", "constant", "--rate", "1", "--duration", "1"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "http://127.0.0.1:1", "model", *_LOAD, "--out"],
        ["compare", "--target", "a=http://127.0.0.1:1#m", "--target", "b=http://127.0.0.1:1#m", *_LOAD, "--out"],
        ["report", "results.json", "--out"],
    ],
)
def test_loadgen_refuses_a_wrong_path_before_it_asks(arguments: list[str], tmp_path: Path) -> None:
    _is_refused(CliRunner().invoke(loadgen, [*arguments, str(tmp_path / "missing" / "out")]))


@pytest.mark.parametrize("arguments", [["compare", "--picture"], ["scaling", "trace.csv", "--all", "--picture"]])
def test_a_simulation_is_not_run_for_a_wrong_path(arguments: list[str], tmp_path: Path) -> None:
    _is_refused(CliRunner().invoke(simulate, [*arguments, str(tmp_path / "missing" / "out")]))


def _is_refused(result: object) -> None:
    assert getattr(result, "exit_code", None) == 2
    said = re.sub(r"[\s│]+", "", getattr(result, "output", ""))
    assert "cannotbewritten:thereisnofolder" in said
