"""Judges versions that get more and more of the requests, while a server runs. Used on the event loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import NamedTuple, Self

import structlog

from dyorc.deployment.canary_judge import CanaryJudgement, Verdict, judge
from dyorc.deployment.deployer import Deployer
from dyorc.deployment.state import TrafficAssignment
from dyorc.errors import DyOrcError
from dyorc.telemetry.version_counts import VersionCounts

_log = structlog.get_logger("dyorc.deploying")

CountVersions = Callable[[], Awaitable[Mapping[str, Mapping[str, VersionCounts]]]]
"""Returns the counts of all processes of the server, by model and version."""


class _Step(NamedTuple):
    """A step that is being judged.

    Attributes:
        assignment: What is deployed in it.
        before: The counts when it began.
        began_s: When that was, on the monotonic clock.
    """

    assignment: TrafficAssignment
    before: Mapping[str, VersionCounts]
    began_s: float


class CanaryRunner:
    """Looks at the counts once in a while, as long as it is entered, and has the deployer carry out what follows.

    Of several processes, the first judges for all. When it starts again, the step that was on begins again.

    Args:
        deployer: Knows what is deployed, and changes it.
        count: Returns the counts.
        interval_s: Between two looks.
        is_in_charge: Whether this process judges.
    """

    def __init__(self, deployer: Deployer, count: CountVersions, interval_s: float, *, is_in_charge: bool) -> None:
        self._deployer = deployer
        self._count = count
        self._interval_s = interval_s
        self._is_in_charge = is_in_charge
        self._steps: dict[str, _Step] = {}
        self._progress: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._is_in_charge:
            self._task = asyncio.create_task(self._judge_forever())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def report(self) -> dict[str, str]:
        """Returns how far the judged versions are, by model."""
        return dict(self._progress)

    async def _judge_forever(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.look()
            except Exception:  # a look that fails must not end all judging
                _log.exception("canary_not_judged")

    async def look(self) -> None:
        """Judges every version that is to be judged."""
        lineups = {model: history.now for model, history in self._deployer.record.lines.items()}
        judged = {model: now for model, now in lineups.items() if now is not None and now.canary is not None}
        for model in [*self._steps]:
            if model not in judged:
                del self._steps[model]
        self._progress = {model: text for model, text in self._progress.items() if model in judged}
        if not judged:
            return
        counts = await self._count()
        for model, now in judged.items():
            await self._look_at(model, now, counts.get(model, {}))

    async def _look_at(self, model: str, now: TrafficAssignment, counts: Mapping[str, VersionCounts]) -> None:
        step = self._steps.get(model)
        if step is None or step.assignment != now:
            self._steps[model] = _Step(now, counts, time.monotonic())
            return
        assert now.canary is not None
        version, default = (
            counts.get(name, VersionCounts()).since(step.before.get(name, VersionCounts()))
            for name in (now.canary.version, now.default)
        )
        judgement = judge(now.canary.rules, version, default, time.monotonic() - step.began_s)
        self._progress[model] = judgement.reason
        if judgement.verdict is not Verdict.WAIT:
            await self._carry_out(model, now, judgement)

    async def _carry_out(self, model: str, now: TrafficAssignment, judgement: CanaryJudgement) -> None:
        goes_on = judgement.verdict is Verdict.GO_ON
        try:
            await self._deployer.settle_canary(model, now, goes_on=goes_on, reason=judgement.reason)
        except DyOrcError as error:  # such as a store that cannot be used now; the next look tries again
            _log.warning("canary_not_settled", model=model, error=str(error))
            self._progress[model] = f"{judgement.reason}; this could not be carried out yet: {error}"
