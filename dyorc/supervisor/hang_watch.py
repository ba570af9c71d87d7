"""Ends cells whose event loops stand still. Only the standard library."""

import asyncio
import time
from collections.abc import Callable, Iterable

from dyorc.supervisor.cell_process import CellProcess
from dyorc.supervisor.console import report_error

_LOOK_S = 0.1


async def abort_hanging_cells(cells: Callable[[], Iterable[CellProcess]], limit_s: float) -> None:
    """Watches for ever.

    Args:
        cells: Returns those that there are now.
        limit_s: How long one may go without a sign of life.
    """
    last_s = time.monotonic()
    while True:
        await asyncio.sleep(_LOOK_S)
        now_s = time.monotonic()
        paused_s, last_s = now_s - last_s - _LOOK_S, now_s
        for cell in list(cells()):
            if cell.beaten_s is None or cell.has_ended:
                continue
            if paused_s > _LOOK_S:
                cell.beaten_s += paused_s  # this process stood still itself, and so perhaps the whole machine
            if now_s - cell.beaten_s > limit_s:
                limit = f"for {limit_s:g} s (the setting CELLS__HANG_LIMIT_S)"
                report_error(f"cell {cell.number} (process {cell.process.pid}) has stood still {limit}, and is ended")
                cell.beaten_s = None
                await cell.abort()
