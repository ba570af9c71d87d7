"""Reads the blocks of code of a documentation's page, and compares what they print with what the page shows.

A page is written for its reader; what the tests do with a block follows from how it looks:

* a block with a title (```` ```python title="app.py" ````) is a file, written into the page's folder;
* ```` ```python ```` runs in the page's interpreter, after the blocks above it, as in a notebook;
* ```` ```sh ```` runs in bash; `dyorc serve` and `dyorc dev` run until the next server starts or the page ends;
* ```` ```text ```` shows what the block before it prints: numbers may differ, `...` stands for any text, and a line with
  nothing else for any lines;
* `<!-- not run: REASON -->` before a block leaves it out;
* `<!-- run: COMMAND -->` runs a command that the reader does not see, and `<!-- files of: PAGE.md -->` begins with the files
  of another page.

Blocks in other languages, without a title, are only shown.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_PART = re.compile(
    r"^<!-- (?P<word>not run|run|files of): (?P<text>.*?) -->$"
    r"|^(?P<indent> *)```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"\d[\d,.:]*|(?<!\S)-(?!\S)")
"""A number, or the `-` of a table that has none yet."""
_SHOWN = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of code.

    Attributes:
        language: As the fence names it; ``files of`` for another page whose files are needed.
        title: The file's name; empty for code that runs.
        code: The text between the fences.
        line: Where it begins in the page, from 1.
        not_run: Why it is left out; empty if it runs.
        output: What the page shows as its output, or None.
    """

    language: str
    title: str
    code: str
    line: int
    not_run: str
    output: str | None


def blocks_of(page: Path) -> list[Block]:
    """Returns a page's blocks of code in their order.

    Raises:
        ValueError: If an output has no block before it, or a reason none after it.
    """
    return list(_blocks(page.read_text(), str(page)))


def _blocks(text: str, name: str) -> Iterator[Block]:
    parts = list(_PART.finditer(text))
    reason = ""
    for index, part in enumerate(parts):
        line = text.count("\n", 0, part.start()) + 1
        if part["word"] == "not run":
            reason = part["text"]
            if index + 1 == len(parts) or parts[index + 1]["word"]:
                raise ValueError(f"{name}:{line}: a reason why a block is not run, and no block after it")
            continue
        if part["word"]:
            language = "sh" if part["word"] == "run" else part["word"]
            yield Block(language=language, title="", code=part["text"], line=line, not_run="", output=None)
            continue
        if part["language"] == _SHOWN and not part["title"]:
            if index == 0 or parts[index - 1]["word"]:
                raise ValueError(f"{name}:{line}: an output, and no block of code before it")
            continue
        after = parts[index + 1] if index + 1 < len(parts) else None
        shows = after is not None and after["language"] == _SHOWN and not after["title"]
        yield Block(
            language=part["language"] or "",
            title=part["title"] or "",
            code=_dedent(part["code"], len(part["indent"])),
            line=line,
            not_run=reason,
            output=_dedent(after["code"], len(after["indent"])) if shows and after is not None else None,
        )
        reason = ""


def _dedent(code: str, width: int) -> str:
    return "".join(line[width:] if line.strip() else line for line in code.splitlines(keepends=True))


def difference(shown: str, printed: str) -> str:
    """Returns how a page's output differs from what was printed; empty if they agree up to numbers, spaces and `...`."""
    expected = [_normal(line) for line in shown.strip("\n").splitlines()]
    actual = [_normal(line) for line in printed.strip("\n").splitlines()]
    return "" if _agree(expected, actual) else f"the page shows:\n{shown}\nit printed:\n{printed}"


def _agree(expected: Sequence[str], actual: Sequence[str]) -> bool:
    if not expected:
        return not actual
    if expected[0] == "...":
        return any(_agree(expected[1:], actual[start:]) for start in range(len(actual) + 1))
    if not actual:
        return False
    pattern = ".*".join(re.escape(piece) for piece in expected[0].split("..."))
    return re.fullmatch(pattern, actual[0]) is not None and _agree(expected[1:], actual[1:])


def _normal(line: str) -> str:
    numbered = _NUMBER.sub("0", re.sub(r"([─━═])\1+", r"\1", line))
    return " ".join(numbered.split())
