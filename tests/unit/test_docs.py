"""The documentation names what there is."""

from pathlib import Path

from dyorc.config import Settings

ROOT = Path(__file__).parents[2]


def test_operations_page_lists_every_setting() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    for section, field in Settings.model_fields.items():
        for name in type(field.default).model_fields:
            assert f"`{section}__{name}`".upper() in page


def test_decisions_page_lists_every_decision() -> None:
    folder = ROOT / "docs" / "decisions"
    page = (folder / "README.md").read_text()
    for path in folder.glob("0*.md"):
        assert f"({path.name})" in page
