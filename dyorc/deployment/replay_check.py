"""Replays recorded requests on a version before it is deployed: `python -m dyorc.deployment.replay_check TARGET FOLDER NUMBER
CODES STEP_LIMIT_S DESCRIPTOR`, in a process of its own.

The process writes a `ReplayReport`, or an error, to the descriptor.
"""

import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from dyorc.authoring.loading import load
from dyorc.deployment.code_process import run_module
from dyorc.errors import DeployError, DyOrcError, ModuleImportError, UnsupportedError
from dyorc.replay.replay_report import ReplayReport, replay_files
from dyorc.replay.replayer import Replayer


class ReplayOutcome(msgspec.Struct):
    """What came of a replay: a report, or why there is none."""

    report: ReplayReport | None = None
    error: str = ""


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
    try:
        result = await run_module(
            "dyorc.deployment.replay_check",
            [target, folder, str(num_requests), ",".join(sorted(codes)), str(step_limit_s)],
            timeout_s,
            f"{target}: its replay",
        )
    except ModuleImportError as error:
        raise DeployError(f"{error}; it is not deployed") from error
    if not result.text:
        raise DeployError(f"{target} is not deployed: the process that replayed requests {result.how}\n{result.printed}".rstrip())
    outcome = msgspec.json.decode(result.text, type=ReplayOutcome)
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
    target, folder, num_requests, codes, step_limit_s, descriptor = sys.argv[1:]
    with os.fdopen(int(descriptor), "wb") as end:
        end.write(
            msgspec.json.encode(
                _replay(target, folder, int(num_requests), [code for code in codes.split(",") if code], float(step_limit_s))
            )
        )
    sys.stdout.flush()
    os._exit(0)  # the module may have started threads


def _replay(target: str, folder: str, num_requests: int, codes: Sequence[str], step_limit_s: float) -> ReplayOutcome:
    try:
        replayer = Replayer(load(target), step_limit_s=step_limit_s)
        return ReplayOutcome(replay_files(replayer, Path(folder), num_requests, codes=codes))
    except (DyOrcError, OSError) as error:
        return ReplayOutcome(error=str(error))


if __name__ == "__main__":
    main()
