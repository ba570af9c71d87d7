"""Writes a page for each package of `dyorc/` from its docstrings: what it is for, and what each of its files holds.

    python docs/write_packages.py docs/packages

Nothing is imported: the docstrings are read from the sources. A test compares the pages with what this writes.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_ROOT = Path(__file__).parents[1]


def pages() -> Mapping[str, str]:
    """Returns the text of each page by its file's name, and `README.md`, which lists them."""
    packages = sorted(path.parent for path in (_ROOT / "dyorc").glob("*/__init__.py"))
    texts = {f"{package.name}.md": _page(package) for package in packages}
    lines = [f"| [`{package.name}/`]({package.name}.md) | {_first_sentence(package / '__init__.py')} |" for package in packages]
    loose = [path for path in sorted((_ROOT / "dyorc").glob("*.py")) if path.name != "__init__.py"]
    lines += [f"| [`{path.name}`](../../{path.relative_to(_ROOT)}) | {_first_sentence(path)} |" for path in loose]
    head = (
        "# The packages\n\nWritten by `make docs-packages` from the docstrings in the code; change these.\n\n| | |\n|---|---|\n"
    )
    return texts | {"README.md": head + "\n".join(lines) + "\n"}


def _page(package: Path) -> str:
    title = f"# `dyorc/{package.name}/`\n\nWritten by `make docs-packages` from the docstrings in the code; change these.\n"
    return title + "".join(_sections(package))


def _sections(folder: Path) -> Iterator[str]:
    """A section for the folder and for each folder below it that has files: the docstring, then the files."""
    docstring = _docstring(folder / "__init__.py")
    is_top = folder.parent.name == "dyorc"
    heading = "" if is_top else f"\n## `{folder.relative_to(_ROOT / 'dyorc')}/`\n"
    yield f"{heading}\n{_as_markdown(docstring)}\n"
    files = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py" and "_pb2" not in path.name]
    if files:
        yield "\n| | |\n|---|---|\n"
        for path in files:
            yield f"| [`{path.name}`](../../{path.relative_to(_ROOT)}) | {_first_sentence(path)} |\n"
    for below in sorted(path.parent for path in folder.glob("*/__init__.py")):
        yield from _sections(below)


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def _first_sentence(path: Path) -> str:
    """The first line of a file's docstring, ready for a table."""
    return _as_markdown(_docstring(path).partition("\n\n")[0].replace("\n", " ")).replace("|", "\\|")


def _as_markdown(text: str) -> str:
    """Docstrings are nearly Markdown: only their literals have two backquotes, as in reStructuredText."""
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    texts = pages()
    for path in folder.glob("*.md"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
