"""A table that loses no text in a narrow terminal: columns that do not fit side by side follow in more tables below.

For the commands that print tables. No I/O.
"""

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

_UNLIMITED = 10_000
"""The width of what no terminal shows, in columns."""


class StackedTable(Table):
    """A table of rich whose cells are never cut. Its first column names the rows and stands in each of the tables.

    A pipe or a file gets one table, as wide as it has to be, since programs and other windows read that.

    Args:
        headers: Columns, or their headers.
    """

    def __init__(self, *headers: Column | str) -> None:
        super().__init__(*headers, box=None, padding=(0, 2, 0, 0))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widest = options.update(width=_UNLIMITED)
        if not options.is_terminal:
            yield from super().__rich_console__(console, widest)
            return
        names, *others = self.columns
        widths = [self._width_of(console, widest, column) for column in self.columns]
        for number, columns in enumerate(_fitting(others, widths[1:], options.max_width - widths[0])):
            if number:
                yield ""
            yield from Table.__rich_console__(_table_of(names, columns), console, options)

    def _width_of(self, console: Console, widest: ConsoleOptions, column: Column) -> int:
        cells: list[RenderableType] = [column.header, *column.cells]
        return max(Measurement.get(console, widest, cell).maximum for cell in cells) + sum(self.padding[1::2])


def _fitting(columns: list[Column], widths: list[int], room: int) -> Iterator[list[Column]]:
    """Groups columns so that each group takes no more room than there is, or is one column."""
    group: list[Column] = []
    taken = 0
    for column, width in zip(columns, widths, strict=True):
        if group and taken + width > room:
            yield group
            group, taken = [], 0
        group.append(column)
        taken += width
    yield group


def _table_of(names: Column, columns: list[Column]) -> StackedTable:
    shown = [names, *columns]
    table = StackedTable(*(Column(column.header, justify=column.justify, overflow="fold") for column in shown))
    for cells in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*cells)
    return table
