"""What `dyorc plan` shows while it searches: a bar for each planner and the best plan so far; one line each on no terminal."""

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from dyorc.planner.planners.auto import Attempt


class SearchProgress:
    """Shows on stderr how far each planner is."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[found]}"))
        self._progress = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "SearchProgress":
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def take(self, attempt: "Attempt") -> None:
        """Shows the news of a planner."""
        if attempt.planner not in self._tasks:
            self._tasks[attempt.planner] = self._progress.add_task(attempt.planner, total=1.0, found="")
        text = _news(attempt)
        self._progress.update(self._tasks[attempt.planner], completed=attempt.done_ratio, found=text)
        if attempt.done_ratio >= 1.0 and not self._console.is_terminal:
            self._console.print(f"{attempt.planner}: {text}", markup=False)


def _news(attempt: "Attempt") -> str:
    if attempt.error:
        return attempt.error.partition("\n")[0]
    cost = "" if attempt.cost_s is None else f"{attempt.cost_s * 1e3:.4g} ms a step"
    best = "" if attempt.best_s is None else f"best so far {attempt.best_s * 1e3:.4g} ms"
    return ", ".join(filter(None, (cost, best)))
