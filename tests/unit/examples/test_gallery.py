"""`examples/README.md` is a gallery: it shows all examples, each with a picture that the script draws."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
APPS = {path.parent.name for name in ("app.py", "workflow.py") for path in EXAMPLES.glob(f"*/{name}")}


def test_the_pictures_are_what_the_script_draws() -> None:
    script = runpy.run_path(str(EXAMPLES / "draw.py"))
    drawn = {f"{name}.svg": script["draw"](*drawing) for name, drawing in script["DRAWINGS"].items()}
    pictures = {path.name: path.read_text() for path in (ROOT / "docs" / "img" / "examples").glob("*.svg")}
    assert pictures == drawn, "python examples/draw.py docs/img/examples"


def test_the_gallery_shows_every_example() -> None:
    page = (EXAMPLES / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    assert len(APPS) > 6
    for name in APPS - {"first"}:
        section = page.partition(f"\n## [{name}]({name})\n")[2].partition("\n## ")[0]
        assert f"](../docs/img/examples/{name}.svg)" in section, name
        assert "**Measured**" in section, name
        command = "make demo" if name == "digits" else f"make demo-{name}"
        assert f"`{command}`" in section, name
        assert f"\n{command.removeprefix('make ')}: " in makefile, name


def test_edges_lead_to_nodes() -> None:
    for name, (nodes, edges) in runpy.run_path(str(EXAMPLES / "draw.py"))["DRAWINGS"].items():
        assert {end for start, target, _ in edges for end in (start, target)} == set(nodes), name
