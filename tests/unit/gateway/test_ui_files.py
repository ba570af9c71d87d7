"""The page's files: complete, unchanged, and nothing from elsewhere."""

import hashlib
import re
from pathlib import Path

import pytest

import dyorc.gateway.ui
from dyorc.gateway.ui.ui_files import START, policy, ui_files

FOLDER = Path(dyorc.gateway.ui.__file__).parent
_ROW = re.compile(r"^\| `(?P<name>[^`]+)` \|.*\(LICENSE\.(?P<licence>\w+)\).*`(?P<sum>[0-9a-f]{64})` \|$", re.MULTILINE)
_IMPORT = re.compile(r"^import .*?from \"(?P<name>[^\"]+)\";$", re.MULTILINE)
_MODULES = ("preact", "preact/hooks", "htm", "dagre")


def test_libraries_are_those_that_their_packages_have() -> None:
    rows = {row["name"]: row for row in _ROW.finditer((FOLDER / "vendor" / "README.md").read_text())}
    assert set(rows) == {name.removeprefix("vendor/") for name in ui_files() if name.startswith("vendor/")}
    for name, row in rows.items():
        assert hashlib.sha256((FOLDER / "vendor" / name).read_bytes()).hexdigest() == row["sum"], name
        assert (FOLDER / "vendor" / f"LICENSE.{row['licence']}").exists()


@pytest.mark.parametrize("name", [name for name in ui_files() if name.endswith(".js") and not name.startswith("vendor/")])
def test_modules_import_what_is_there(name: str) -> None:
    for found in _IMPORT.finditer(ui_files()[name].body.decode()):
        target = found["name"]
        if target not in _MODULES:
            path = (FOLDER / "page" / name).parent / target
            assert path.resolve().relative_to(FOLDER / "page").as_posix() in ui_files(), f"{name} imports {target}"


def test_all_files_of_the_page_are_served() -> None:
    on_disk = {path.relative_to(FOLDER / "page").as_posix() for path in (FOLDER / "page").rglob("*") if path.is_file()}
    assert on_disk == {name for name in ui_files() if not name.startswith("vendor/")}


def test_policy_allows_what_stands_in_the_page_by_its_sum_alone() -> None:
    assert policy().startswith("default-src 'self'; script-src 'self' 'sha256-")
    assert "unsafe" not in policy()
    page = ui_files()[START].body.decode()
    assert page.count("<script>") == page.count("<style") == page.count("style=") == page.count(" onclick") == 0
    assert "http://" not in page
    assert "https://" not in page
