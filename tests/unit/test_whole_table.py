"""Tables of the command line lose no text, whatever the width."""

import io

import pytest
from rich.console import Console
from rich.table import Column

from dyorc.cli.stacked_table import StackedTable

HEADERS = ("state", "requests/s", "batch: mean/most", "guesses: right/wrong/run", "why")
LONG = "FileNotFoundError: no weights at /models/a-model/with/a/rather/long/path/model.safetensors"


def printed(width: int, *, is_terminal: bool) -> list[str]:
    table = StackedTable("program", *(Column(name, justify="right") for name in HEADERS))
    for name in ("recognise_text_of_lines", "b"):
        table.add_row(name, "failing", "12.5", "4.0/16", "10/2/12", LONG)
    console = Console(file=io.StringIO(), width=width, force_terminal=is_terminal, color_system=None)
    console.print(table, soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_terminal_sees_every_cell_and_header_within_its_width(width: int) -> None:
    lines = printed(width, is_terminal=True)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for word in (*HEADERS, "recognise_text_of_lines", "4.0/16", "10/2/12"):
        assert word in text
    assert "…" not in text
    assert LONG.replace(" ", "") in "".join(text.split()).replace("recognise_text_of_lines", "").replace("program", "")


def test_a_terminal_that_is_wide_enough_gets_one_table() -> None:
    assert len(printed(300, is_terminal=True)) == 3


def test_a_pipe_gets_one_table_with_a_line_for_each_row() -> None:
    header, *rows = printed(80, is_terminal=False)
    assert header.split("  ")[0] == "program"
    assert len(rows) == 2
    assert all(LONG in row for row in rows)
