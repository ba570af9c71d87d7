"""Replays recorded requests on a version before it is deployed: `python -m dyorc.deployment.replay_check ORDER DESCRIPTOR`, in a
process of its own.

The order is a `ReplayOrder`; the process writes a `ReplayOutcome` to the descriptor.
"""

import sys
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from dyorc.authoring.loading import load
from dyorc.deployment.code_process import answer_and_exit, run_module
from dyorc.errors import DeployError, DyOrcError, ModuleImportError, UnsupportedError
from dyorc.replay.replay_report import MAX_EXAMPLES, ReplayReport, replay_files
from dyorc.replay.replayer import Replayer


class ReplayOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What to replay.

    Attributes:
        target: The version.
        records: A file or folder of histories. An absolute path: users' modules may change the current folder.
        max_requests: Only so many of the newest; None: all.
        step_limit_s: For one step of the workflow.
        versions: Only requests that these answered; empty: all.
        codes: Only requests that code with these short digests answered; None: all.
        run_programs: See `Replayer`.
        tolerance: See `compare`.
        max_examples: How many different requests are named.
    """

    target: str
    records: str
    max_requests: int | None
    step_limit_s: float
    versions: Sequence[str] = ()
    codes: Sequence[str] | None = None
    run_programs: bool = False
    tolerance: float = 0.0
    max_examples: int = MAX_EXAMPLES

    def to_json(self) -> str:
        """Returns the argument of the process."""
        return msgspec.json.encode(self).decode()


class ReplayOutcome(msgspec.Struct):
    """What came of a replay: a report, or why there is none.

    Attributes:
        error: Why there is no report.
        user_traceback: Of a version that could not be imported.
    """

    report: ReplayReport | None = None
    error: str = ""
    user_traceback: str = ""


async def check_replay(
    target: str,
    folder: str,
    num_requests: int,
    codes: Collection[str],
    max_differences: int,
    timeout_s: float,
    step_limit_s: float,
) -> ReplayReport:
    """Replays the last requests on a target that is to be deployed.

    Args:
        codes: Short digests of the code of the versions that are served. Requests that others answered do not count: what a
            version did that was rolled back or replaced is no measure.
        folder: Where the histories are; empty: there are none.
        max_differences: So many of the requests may be different.
        timeout_s: For the whole replay, the import included.
        step_limit_s: For one step of the workflow, as where it is served.

    Raises:
        UnsupportedError: If this server records no histories.
        DeployError: If more are different, or the replay failed, or was stopped.
    """
    if not folder:
        raise UnsupportedError(
            "this server has no recorded requests to replay: it records them if the setting telemetry.histories.folder is set"
        )
    order = ReplayOrder(target=target, records=folder, max_requests=num_requests, step_limit_s=step_limit_s, codes=sorted(codes))
    try:
        result = await run_module(
            "dyorc.deployment.replay_check",
            [order.to_json()],
            timeout_s,
            f"{target}: its replay",
        )
    except ModuleImportError as error:
        raise DeployError(f"{error}; it is not deployed") from error
    outcome = result.read(ReplayOutcome)
    if outcome is None:
        raise DeployError(f"{target} is not deployed: the process that replayed requests {result.how}\n{result.printed}".rstrip())
    report = outcome.report
    if report is None or not report.num_replayed:
        raise DeployError(f"{target} is not deployed: {outcome.error if report is None else report.why_none}")
    if report.num_different > max_differences or report.stopped:
        raise DeployError("\n".join([f"{target} is not deployed: {_summary(report, max_differences)}", *_examples(report)]))
    return report


def _summary(report: ReplayReport, max_differences: int) -> str:
    parts = {
        "have another outcome of a decision": report.num_other_outcomes,
        "make other calls": report.num_other_calls,
        "have effects in another order": report.num_other_orders,
        "have another answer": report.num_other_answers,
        "have another error": report.num_other_errors,
        "need what is not recorded": report.num_diverged,
        "are not deterministic": report.num_nondeterministic,
    }
    details = ", ".join(f"{number} {text}" for text, number in parts.items() if number)
    return (
        f"{report.num_different} of {report.num_replayed} recorded requests are different, at most {max_differences} may be "
        f"({details})"
        + f"; the replay was stopped: {report.stopped}" * bool(report.stopped)
        + f"; {len(report.damaged)} lines are no histories, the first is {''.join(report.damaged[:1])}" * bool(report.damaged)
    )


def _examples(report: ReplayReport) -> list[str]:
    return [example.sentence() for example in report.examples]


# The process that replays


def main() -> None:
    """Replays, and writes the outcome."""
    order, descriptor = sys.argv[1:]
    replay_and_exit(order, int(descriptor))


def replay_and_exit(order_json: str, descriptor: int) -> NoReturn:
    """Replays, writes the outcome to a descriptor, and ends this process.

    Args:
        order_json: A `ReplayOrder`.
    """
    order = msgspec.json.decode(order_json, type=ReplayOrder)
    answer_and_exit(descriptor, partial(_replay, order))


def _replay(order: ReplayOrder) -> ReplayOutcome:
    try:
        replayer = Replayer(load(order.target), run_programs=order.run_programs, step_limit_s=order.step_limit_s)
        return ReplayOutcome(
            replay_files(
                replayer, Path(order.records), order.max_requests, tolerance=order.tolerance,
                max_examples=order.max_examples, versions=order.versions, codes=order.codes,
            )
        )  # fmt: skip
    except ModuleImportError as error:
        return ReplayOutcome(error=str(error), user_traceback=error.user_traceback)
    except (DyOrcError, OSError) as error:
        return ReplayOutcome(error=str(error))


if __name__ == "__main__":
    main()
