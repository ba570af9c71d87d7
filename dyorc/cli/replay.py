"""``dyorc replay``: recorded requests on another version of their workflow, before it is deployed."""

import contextlib
import signal
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from dyorc.cli.server_options import AsJson
from dyorc.cli.stacked_table import StackedTable
from dyorc.errors import ConfigurationError, DeployError, DyOrcError, ModuleImportError, without_errno
from dyorc.system.finite_option import finite

if TYPE_CHECKING:
    from dyorc.replay.replay_report import Latency, ReplayReport

_DIFFERENT, _IMPOSSIBLE, _DAMAGED = 1, 2, 3
"""Exit codes."""
_MAX_LINES = 10


def replay(
    records: Annotated[
        Path, typer.Argument(metavar="RECORDS", help="The folder of the setting telemetry.histories.folder, or one of its files.")
    ],
    target: Annotated[str, typer.Argument(metavar="PATH:WORKFLOW", help="The version to try, such as app.py:classify.")],
    max_requests: Annotated[
        int | None, typer.Option(min=1, help="Only so many of the newest requests of this workflow, and of these versions.")
    ] = None,
    version: Annotated[
        list[str] | None, typer.Option(help="Only requests that this version answered. May be given several times.")
    ] = None,
    run_programs: Annotated[
        bool, typer.Option("--run-programs", help="Run programs for calls that no record has; never those with an effect.")
    ] = False,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0,
            callback=finite,
            help="Floats of answers may differ by this part of the recorded one, and near 0 by a thousandth of this.",
        ),
    ] = 0.0,
    examples: Annotated[int, typer.Option(min=0, help="So many of the different requests are named.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Tries a version on recorded requests. Ends with 0 if all are the same, 1 if some differ, 2 if it could not be tried,
    3 if none differs and some records could not be read."""
    try:
        with _ended_by_interrupt():
            report = _report(records, target, max_requests, version or (), run_programs, tolerance, examples)
    except (DyOrcError, OSError) as error:
        console = Console(stderr=True)
        if isinstance(error, ModuleImportError):
            console.print(error.user_traceback, markup=False, soft_wrap=True, highlight=False, end="")
        console.print(f"[red]dyorc:[/red] {escape(without_errno(str(error)))}", highlight=False, soft_wrap=True)
        raise typer.Exit(_IMPOSSIBLE) from None
    if as_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        show_report(report, Console(soft_wrap=True, highlight=False))
    if report.num_different:
        raise typer.Exit(_DIFFERENT)
    if report.damaged:
        raise typer.Exit(_DAMAGED)


@contextlib.contextmanager
def _ended_by_interrupt() -> Generator[None]:
    """While entered, Ctrl-C ends the process at once, and with it the one that replays: nothing has to be tidied up."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _report(
    records: Path,
    target: str,
    max_requests: int | None,
    versions: Sequence[str],
    run_programs: bool,
    tolerance: float,
    examples: int,
) -> "ReplayReport":
    from dyorc.deployment.code_process import run_attached
    from dyorc.deployment.replay_check import ReplayOrder, ReplayOutcome
    from dyorc.settings.settings_reader import read_settings

    order = ReplayOrder(
        target=target, records=str(records.absolute()), max_requests=max_requests, versions=list(versions),
        step_limit_s=read_settings().engine.step_limit_s,
        run_programs=run_programs, tolerance=tolerance, max_examples=examples,
    )  # fmt: skip
    result = run_attached("dyorc.cli.replay_process", [order.to_json()])
    outcome = result.read(ReplayOutcome)
    if outcome is None:
        raise DeployError(f"{target}: the process that replayed requests {result.how}, and has no report")
    if outcome.report is None:
        raise ModuleImportError(outcome.error, outcome.user_traceback)
    if not outcome.report.num_replayed:
        raise ConfigurationError(f"{records}: {outcome.report.why_none}")
    return outcome.report


def show_report(report: "ReplayReport", console: Console) -> None:
    """Prints a report for people."""
    console.print(
        f"{report.num_replayed} requests of {report.workflow} replayed in {report.took_s:.1f} s ({_versions(report)}): "
        f"{report.num_same} the same, {report.num_different} different"
    )
    table = StackedTable("requests", "", "")
    for number, kind, details in _rows(report):
        if number:
            table.add_row(str(number), kind, details)
    if table.row_count:
        console.print(table)
    if report.recorded is not None and report.expected is not None:
        console.print(
            f"latency of the {report.num_timed} that came to an end, recorded: {_shown(report.recorded)}; "
            f"expected: {_shown(report.expected)}"
        )
    for example in report.examples:
        console.print(example.sentence(), markup=False)
    if report.stopped:
        console.print(f"stopped, and the requests after that were not replayed: {report.stopped}", markup=False)


def _rows(report: "ReplayReport") -> Iterator[tuple[int, str, str]]:
    from dyorc.replay.request_comparison import short_outcomes

    yield report.num_other_outcomes, "another outcome of a decision", ""
    for site, before, now, number in report.outcomes[:_MAX_LINES]:
        was, is_now = short_outcomes(before, now)
        yield number, "", escape(f"{site}: {was} is {is_now}")
    yield report.num_other_calls, "other calls", ", ".join(_calls(report))
    yield report.num_other_orders, "effects in another order", ""
    yield report.num_other_answers, "another answer", escape(report.answer)
    yield report.num_other_errors, "another error, or one where there was none", ""
    for error, number in list(report.errors.items())[:_MAX_LINES]:
        yield number, "", escape(error)
    yield report.num_diverged, "ended early", ""
    for missing, number in list(report.missing.items())[:_MAX_LINES]:
        yield number, "", escape(missing)
    yield report.num_nondeterministic, "not deterministic", ""
    for reason, number in list(report.num_not_replayed.items())[:_MAX_LINES]:
        yield number, "not replayed", escape(reason)
    yield report.num_of_others, "of other workflows", ""
    yield len(report.damaged), "lines that are no histories", ""
    for damaged in report.damaged[:_MAX_LINES]:
        yield 1, "", escape(damaged)


def _calls(report: "ReplayReport") -> Iterator[str]:
    for program, number in report.more_calls.items():
        yield f"{program}: {number} more"
    for program, number in report.fewer_calls.items():
        yield f"{program}: {number} fewer"


def _versions(report: "ReplayReport") -> str:
    numbers = list(report.versions.items())
    shown = [f"{number} of version {version}" for version, number in numbers[:_MAX_LINES]]
    return ", ".join(shown + [f"others of {len(numbers) - _MAX_LINES} versions"] * (len(numbers) > _MAX_LINES))


def _shown(latency: "Latency") -> str:
    return f"p50 {latency.p50_ms:.2f} ms, p99 {latency.p99_ms:.2f} ms"
