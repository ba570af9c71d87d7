"""Shows the progress of a measurement: in place on a terminal, as plain lines elsewhere."""

import sys
import time
from typing import Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from loadgen.load import Load
from loadgen.progress import Progress

_LINE_EVERY_S = 2.0


class Display:
    """Shows progress while entered; pass its `show` to `loadgen.run.run`.

    Args:
        label: The name of what is measured.
        load: How much load there is, and for how long.
        stream: Where to write; by default standard error, since standard output is for results.
    """

    def __init__(self, label: str, load: Load, stream: TextIO | None = None) -> None:
        self._label = label
        self._total_s = load.warm_up_s + load.duration_s
        self._warm_up_s = load.warm_up_s
        self._console = Console(file=stream or sys.stderr)
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if self._console.is_terminal else None
        self._began_s: float | None = None
        self._before = (0.0, 0)
        self._printed_s = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Shows the latest progress."""
        now_s = time.monotonic()
        if self._began_s is None:
            self._began_s = now_s - 0.5  # workers first report half a second after they begin
            self._before = (self._began_s, 0)
        before_s, before = self._before
        if now_s - before_s >= 0.4 or not before:  # several workers report one after another
            self._rate_rps = (progress.num_done - before) / max(1e-3, now_s - before_s)
            self._before = (now_s, progress.num_done)
        elapsed_s = now_s - self._began_s
        if self._live is not None:
            self._live.update(self._table(progress, elapsed_s), refresh=True)
        elif now_s - self._printed_s >= _LINE_EVERY_S:
            self._printed_s = now_s
            print(
                "  ".join(f"{name} {value}" for name, value in self._cells(progress, elapsed_s)),
                file=self._console.file,
                flush=True,
            )

    def _cells(self, progress: Progress, elapsed_s: float) -> list[tuple[str, str]]:
        return [
            (self._label, "warming up" if elapsed_s < self._warm_up_s else f"{min(elapsed_s, self._total_s):.1f} s"),
            ("req/s", f"{self._rate_rps:,.0f}"),
            ("p50", f"{progress.p50_ms:.2f} ms"),
            ("p99", f"{progress.p99_ms:.2f} ms"),
            ("in flight", str(progress.in_flight)),
            ("errors", str(progress.num_failed)),
            ("sent late", f"{progress.send_delay_ms:.2f} ms"),
        ]

    def _table(self, progress: Progress, elapsed_s: float) -> Table:
        cells = self._cells(progress, elapsed_s)
        table = Table.grid(padding=(0, 2))
        table.add_row("", *(name for name, _ in cells), style="dim")
        bar = ProgressBar(total=self._total_s, completed=min(elapsed_s, self._total_s), width=24)
        table.add_row(bar, *(value for _, value in cells))
        return table
