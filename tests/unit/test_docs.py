"""The documentation names what there is."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from dyorc.config import Settings

ROOT = Path(__file__).parents[2]


def test_operations_page_lists_every_setting() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    for name in _settings(Settings):
        assert f"`{name}`".upper() in page


def _settings(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from _settings(type(field.default), f"{prefix}{name}__")
        else:
            yield f"{prefix}{name}"


def test_decisions_page_lists_every_decision() -> None:
    folder = ROOT / "docs" / "decisions"
    page = (folder / "README.md").read_text()
    for path in folder.glob("0*.md"):
        assert f"({path.name})" in page
