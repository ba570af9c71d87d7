"""A module that cannot be imported: its author sees what it raised and where, and none of our frames."""

import subprocess
import sys
from pathlib import Path

import pytest

from dyorc.authoring.loading import load
from dyorc.errors import DefinitionError, ModuleImportError

_FILES = {
    "wrong_syntax.py": "x = 1\ndef f(:\n",
    "wrong_name.py": "import wrong_helper\n",
    "wrong_helper.py": "def look_up():\n    return nowhere\n\nlook_up()\n",
    "wrong_import.py": "import no_such_package_anywhere\n",
    "wrong_chain.py": "try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError('no a') from error\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Holds modules that cannot be imported; removes what they leave in Python."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name, text in _FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("kind", ["file", "module"])
@pytest.mark.parametrize(
    ("name", "says", "shows"),
    [
        ("wrong_syntax", "SyntaxError: invalid syntax (wrong_syntax.py, line 2)", ["def f(:"]),
        (
            "wrong_name",
            "NameError: name 'nowhere' is not defined (wrong_helper.py, line 2)",
            ["import wrong_helper", "look_up()"],
        ),
        ("wrong_import", "ModuleNotFoundError: No module named 'no_such_package_anywhere' (wrong_import.py, line 1)", []),
        ("wrong_chain", "ValueError: no a (wrong_chain.py, line 4)", ["KeyError: 'a'", "direct cause"]),
    ],
)
def test_the_error_names_what_was_raised_and_where(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, says: str, shows: list[str]
) -> None:
    monkeypatch.chdir(folder)
    target = f"{folder / name}.py" if kind == "file" else name
    with pytest.raises(ModuleImportError) as caught:
        load(f"{target}:anything")
    assert str(caught.value) == f"{name}{'.py' if kind == 'file' else ''} cannot be imported: {says}"
    shown = caught.value.user_traceback
    for part in shows:
        assert part in shown
    assert "loading.py" not in shown
    assert "importlib" not in shown
    assert name not in sys.modules


def test_an_error_of_ours_is_not_changed(folder: Path) -> None:
    (folder / "wrong_program.py").write_text("import dyorc\n\n@dyorc.program\ndef f(x):\n    return x\n")
    with pytest.raises(DefinitionError) as caught:
        load(f"{folder / 'wrong_program.py'}:f")
    assert type(caught.value) is DefinitionError


def test_the_command_line_shows_the_users_lines_and_one_of_its_own(folder: Path) -> None:
    command = [sys.executable, "-m", "dyorc.cli.main", "run", f"{folder / 'wrong_name.py'}:x", "-i", "x.npy"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode == 1
    *lines, last = found.stderr.splitlines()
    assert last == "dyorc: wrong_name.py cannot be imported: NameError: name 'nowhere' is not defined (wrong_helper.py, line 2)"
    files = {line.split('"')[1] for line in lines if line.startswith('  File "')}
    assert files == {str(folder / "wrong_name.py"), str(folder / "wrong_helper.py")}
