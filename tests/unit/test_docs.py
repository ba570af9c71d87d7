"""The documentation is complete, and its links lead somewhere."""

import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from dyorc.config import Settings
from tests.markdown import anchors, links

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(path for folder in ("docs", "examples", "benchmarks", "services") for path in (ROOT / folder).rglob("*.md")),
]


def test_the_page_of_settings_lists_every_setting_with_its_default() -> None:
    assert _wrong_defaults((ROOT / "docs" / "reference" / "settings.md").read_text()) == {}


@pytest.mark.parametrize(
    ("right", "wrong", "setting"),
    [
        ("| `CELLS__INLINE_LIMIT_S` | 0.002 |", "| `CELLS__INLINE_LIMIT_S` | 0.001 |", "CELLS__INLINE_LIMIT_S"),
        ("| 4096, 1 GiB |", "| 4096, 1 MiB |", "GATEWAY__MAX_BYTES_IN_FLIGHT"),
        ("| 4096, 1 GiB |", "| 1 GiB, 4096 |", "GATEWAY__MAX_REQUESTS"),
        ("| 1 day, 30 days |", "| 1, 30 days |", "JOBS__TTL_S"),
        ("| `GATEWAY__SHED` | true |", "| `GATEWAY__SHED` | false |", "GATEWAY__SHED"),
        ("| `GATEWAY__SHED` | true |", "| `GATEWAY__SHED` | 1 |", "GATEWAY__SHED"),
        ("| `SCALING__SEASON_S` | none |", "| `SCALING__SEASON_S` | 0 |", "SCALING__SEASON_S"),
        ("| `ENGINE__MAX_ATTEMPTS` | 3 |", "| `ENGINE__MAX_ATTEMPTS` | |", "ENGINE__MAX_ATTEMPTS"),
        ("| `ENGINE__MAX_ATTEMPTS` | 3 |", "| `ENGINE__MAX_ATTEMPT` | 3 |", "ENGINE__MAX_ATTEMPTS"),
        ("| console, warning |", "| console, info |", "TELEMETRY__LOGS__LEVEL"),
        ("| half of `/dev/shm` |", "| none |", "TRANSPORT__ARENA_BYTES"),
    ],
)
def test_a_wrong_default_is_found(right: str, wrong: str, setting: str) -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert page.count(right) == 1
    assert setting in _wrong_defaults(page.replace(right, wrong))


_CHOSEN_LATER = {
    "CELLS__DEVICE_BYTES": "a quarter of its memory",
    "GATEWAY__GRPC_PORT": "the port after HTTP's",
    "TELEMETRY__TRACES__PROTOCOL": "grpc",
    "TRANSPORT__DEVICE_BYTES": "an eighth of its memory",
    "TRANSPORT__ARENA_BYTES": "half of `/dev/shm`",
    "TRANSPORT__INLINE_LIMIT_BYTES": "measured",
}
"""Settings that are empty by default because the server then chooses a value itself: what the page says of it."""
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "day": 86_400, "days": 86_400}
_QUANTITY = re.compile(rf"(\d[\d,.]*)(?: ({'|'.join(_UNITS)}))?")


def _wrong_defaults(page: str) -> dict[str, str]:
    """Returns what the page's table says of each setting that is not so, or is missing there."""
    table = page
    said: dict[str, str] = {}
    for names, defaults, _ in re.findall(r"^\| (`[^|]*`) \| ([^|]*?) ?\| ([^|]*)\|$", table, re.MULTILINE):
        settings = re.findall(r"`([A-Z0-9_]+)`", names)
        each = defaults.split(", ")
        said |= dict(zip(settings, each if len(each) > 1 else each * len(settings), strict=True))
    defaults = dict(_settings(Settings))
    return {
        name: said.get(name, "not in the table")
        for name in said.keys() | defaults.keys()
        if name not in said or name not in defaults or not _says(name, said[name], defaults[name])
    }


def _says(setting: str, text: str, default: object) -> bool:
    if setting in _CHOSEN_LATER:
        return default in (None, "") and text == _CHOSEN_LATER[setting]
    if isinstance(default, bool):
        return text == str(default).lower()
    if isinstance(default, int | float):
        number = _QUANTITY.fullmatch(text)
        return number is not None and float(number[1].replace(",", "")) * _UNITS.get(number[2], 1) == default
    if default in (None, "", (), {}):
        return text in ("", "none")
    return text == (", ".join(default) if isinstance(default, tuple) else default)


def _settings(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yields each setting as its environment variable names it, and its default."""
    for name, field in section.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from _settings(type(field.default), f"{prefix}{name.upper()}__")
        else:
            yield f"{prefix}{name.upper()}", field.default


def test_extras_that_are_mentioned_exist_and_the_page_of_installation_explains_each() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    sources = [*PAGES, *sorted((ROOT / "dyorc").rglob("*.py"))]
    mentioned = re.findall(r"dyorc(?:-core)?\\?\[([a-z,]+)\\?\]", "".join(path.read_text() for path in sources))
    assert {"traces", "profile", "ocr", "ray"} <= {extra for each in mentioned for extra in each.split(",")} <= extras
    section = (ROOT / "docs/how-to/install.md").read_text().partition("## Extras\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert {extra for row in rows for extra in re.findall(r"`([a-z]+)`", row.split("|")[1])} == extras


def test_decisions_page_lists_every_decision() -> None:
    folder = ROOT / "docs" / "decisions"
    page = (folder / "README.md").read_text()
    for path in folder.glob("0*.md"):
        assert f"({path.name})" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    dead = [target for target in links(page) if not _leads_somewhere(page, target)]
    assert not dead


def _leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    return file.exists() and file.is_relative_to(ROOT) and (not anchor or anchor in anchors(file))


def test_all_pages_are_checked() -> None:
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    assert {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/reference/http.md", "docs/decisions/README.md"} <= names
    assert sum(len(links(page)) for page in PAGES) > 100


def test_dead_links_are_found(tmp_path: Path) -> None:
    page = ROOT / "docs" / "reference" / "http.md"
    assert _leads_somewhere(page, "../../README.md")
    assert not _leads_somewhere(page, "nothing.md")
    assert not _leads_somewhere(page, "#nothing")
    assert not _leads_somewhere(page, str(tmp_path))
    other = tmp_path / "page.md"
    other.write_text("# `one` and [two](x.md)\n\n## Same\n\n```\n# not\n[this](a.md)\n```\n\n`[or](b.md)`\n\n## Same\n")
    assert anchors(other) == {"one-and-two", "same", "same-1"}
    assert links(other) == ["x.md"]


def test_the_pages_of_packages_are_written_from_their_docstrings() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "write_packages.py"))["pages"]()
    assert {path.name: path.read_text() for path in (ROOT / "docs" / "packages").glob("*.md")} == written, "make docs-packages"


def test_what_architecture_says_is_decided_in_a_file_is_defined_there() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("## Where it is decided")[2].partition("\n## ")[0]
    places = re.findall(r"\]\((?P<file>[\w/.]+)\) `(?P<name>\w+)`", table)
    assert len(places) > 20
    for file, name in places:
        assert re.search(rf"^\s*(async )?(def|class) {name}\b", (ROOT / file).read_text(), re.MULTILINE), f"{file} has no {name}"


@pytest.mark.parametrize("page", sorted((ROOT / "examples").glob("*/README.md")), ids=lambda page: page.parent.name)
def test_an_example_by_hand_names_what_it_needs_and_serves_without_ray(page: Path) -> None:
    by_hand = page.read_text().partition("By hand")[2].partition("\n## ")[0]
    assert re.search(r"pip install 'dyorc-core\[\w+\]'", by_hand)
    served = re.findall(r"^    dyorc serve .*", by_hand, re.MULTILINE)
    assert served, "no line serves it"
    assert [line for line in served if not line.endswith("--in-process") and "--plan" not in line] == []
