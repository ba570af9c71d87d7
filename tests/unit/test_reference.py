"""Pages of the reference that are written from the code are as the code is."""

import re
import runpy
from pathlib import Path

import dyorc
from dyorc import errors

_FOLDER = Path(__file__).parents[2] / "docs" / "reference"
_WRITER = runpy.run_path(str(_FOLDER.parent / "write_reference.py"))


def _commands(page: str) -> list[str]:
    """The headings, options and descriptions of a page of commands; typer's versions differ in how they name a type."""
    return re.findall(r"^(?:## .*|\* `(?:-\w, )?--[\w-]+|\* `[\w-]+`.*|[A-Z].*)", page, re.MULTILINE)


def test_the_page_of_commands_has_all_commands_and_options() -> None:
    page = (_FOLDER / "cli.md").read_text()
    assert "* `--in-process / --on-ray`" in page
    assert _commands(page) == _commands(_WRITER["cli_page"]()), "make docs-reference"


def test_the_pages_of_errors_and_of_grpc_are_up_to_date() -> None:
    for name in ("errors.md", "grpc-calls.md"):
        assert (_FOLDER / name).read_text() == _WRITER["PAGES"][name](), "make docs-reference"


def test_every_error_has_a_cause_and_a_cure() -> None:
    page = (_FOLDER / "errors.md").read_text()
    codes = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DyOrcError)}
    assert set(re.findall(r"^### `(\w+)`$", page, re.MULTILINE)) == codes
    assert page.count("\n**Cure.** ") == len(codes)


def test_the_page_of_the_api_has_all_public_names() -> None:
    listed = set(re.findall(r"^::: dyorc\.(\w+)$", (_FOLDER / "api.md").read_text(), re.MULTILINE))
    in_the_list_of_errors = {name for name in dyorc.__all__ if hasattr(errors, name)}
    assert listed >= set(dyorc.__all__) - in_the_list_of_errors
