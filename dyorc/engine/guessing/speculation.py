"""When to guess: which outcomes of an open decision are followed, and how much may be spent on uncertain calls.

Four limits keep guesses from doing harm. A call runs ahead of its decision only where the time it is expected to save exceeds the
time other calls are expected to wait for it (`dyorc.engine.scheduling.speculation_policy` weighs that for each batch). Token
buckets, one per workflow and one for all, bound the device time of wrong guesses. An outcome that gained nothing is not followed
for some time, then tried again. All three rest on estimates; so some requests do not guess, and a workflow whose requests are
quicker that way stops guessing (`dyorc.engine.guessing.speculation_trial`).
"""

from collections.abc import Sequence
from typing import Any

from dyorc.authoring.decisions import DecisionSite
from dyorc.authoring.exact_values import Exact, exact, is_immutable
from dyorc.authoring.workflow import Workflow
from dyorc.config import SpeculationConfig
from dyorc.engine.engine_statistics import EngineStatistics, ModelRecord
from dyorc.engine.guessing.prediction import HistoryPredictor, Predictor
from dyorc.engine.guessing.speculation_trial import SpeculationTrial
from dyorc.engine.model.futures import Outcome
from dyorc.engine.model.journal import BranchPoint
from dyorc.engine.model.program_call import Call
from dyorc.engine.model.speculation_budget import Bet, Round, SpeculationBudget
from dyorc.errors import InternalError

_MAX_BREADTH = 4
"""Outcomes of one decision that are followed."""
_NUM_TRIALS = 64
_NUM_TRIALS_AGAIN = 16
"""After a pause. A loop of thousands of turns would otherwise spend most of them on trials of what does not pay."""
_FIRST_PAUSE = 32
_MAX_PAYOFFS = 10_000
_MAX_PAUSE = 1024
_SCORE_RATE = 0.02
_FOLLOW_COST_S = 50e-6
"""What following an outcome costs the orchestrator itself."""
_RERUN_STEP_S = 2e-6
"""What each call or decision costs that a run repeats: one that begins again, or that follows another outcome."""
_MAX_RISK_S = 0.0005
"""An outcome is followed on trial only if the run that it may bring about is expected to cost less than this."""

_NEW_TRIAL = SpeculationTrial()


class _Payoff:
    """What following one outcome of one site has gained: seconds each time, negative if it cost.

    An outcome is followed a number of times on trial, then as long as it gains. If it does not, it is skipped for some time, and
    tried again a smaller number of times.
    """

    __slots__ = ("num_followed", "num_samples", "num_trials", "pause", "score_s", "skips")

    def __init__(self) -> None:
        self.score_s = 0.0
        self.num_followed = 0
        self.num_samples = 0
        self.num_trials = _NUM_TRIALS
        self.pause = _FIRST_PAUSE
        self.skips = 0

    def allows(self, risk_s: float) -> bool:
        """Returns whether to follow the outcome this time.

        Args:
            risk_s: What the runs that this may bring about are expected to cost.
        """
        if risk_s > _MAX_RISK_S and risk_s > self.score_s:
            return False
        if self.skips:
            self.skips -= 1
            return False
        self.num_followed += 1
        if self.num_followed > self.num_trials and self.score_s <= 0:
            # Results are still to come, and some may never: a request may be cancelled.
            self.skips, self.num_followed = _NUM_TRIALS, self.num_trials // 2
            return False
        return True

    def add(self, gain_s: float) -> None:
        """Records what following the outcome gained once."""
        self.num_samples += 1
        self.score_s += max(_SCORE_RATE, 1 / self.num_samples) * (gain_s - self.score_s)
        if self.num_samples < self.num_trials:
            return
        if self.score_s > 0:
            self.skips = 0
            self.pause = _FIRST_PAUSE
        else:
            self._pause()

    def _pause(self) -> None:
        self.skips = self.pause
        self.pause = min(2 * self.pause, _MAX_PAUSE)
        self.num_trials = _NUM_TRIALS_AGAIN
        self.num_followed = self.num_samples = 0
        self.score_s = 0.0


def _rerun_s(point: BranchPoint) -> float:
    """Returns what a run costs that goes the way to a decision again."""
    return point.segment.next_position * _RERUN_STEP_S


class Speculator:
    """Decides what is guessed, counts it, and learns from the results.

    Attributes:
        num_speculations: Calls that ran, or began to, before they were certain.
        num_commits: Guesses that were right.
        num_squashes: Guesses that were wrong.
        total: The budget of all workflows together.
    """

    def __init__(
        self, config: SpeculationConfig, predictor: Predictor | None = None, statistics: EngineStatistics | None = None
    ) -> None:
        self._config = config
        self._statistics = statistics or EngineStatistics()
        self._predictor: Predictor = HistoryPredictor() if predictor is None else predictor
        self._payoffs: dict[tuple[DecisionSite, Outcome], _Payoff] = {}
        self._budgets: dict[Workflow, SpeculationBudget] = {}
        self._trials: dict[Workflow, SpeculationTrial] = {}
        self._round = Round(config.enabled, 0)
        self.is_enabled = config.enabled
        self.total = SpeculationBudget(config)
        self.num_speculations = 0
        self.num_commits = 0
        self.num_squashes = 0

    def budget(self, workflow: Workflow) -> SpeculationBudget:
        """Returns what requests of a workflow may waste."""
        budget = self._budgets.get(workflow)
        if budget is None:
            budget = self._budgets[workflow] = SpeculationBudget(self._config)
        return budget

    def round(self, workflow: Workflow, now_ns: int) -> Round:
        """Returns the round of a request that arrives now, which says whether the request guesses."""
        if not self._config.compare or not self.is_enabled:
            return self._round
        trial = self._trials.get(workflow)
        if trial is None:
            trial = self._trials[workflow] = SpeculationTrial()
        return trial.admit(now_ns)

    def forget(self, workflow: Workflow) -> None:
        """Forgets a workflow that is no longer served."""
        self._budgets.pop(workflow, None)
        self._trials.pop(workflow, None)

    def report(self) -> dict[str, Any]:
        """Returns how guessing goes, as plain values: for all workflows together, and the device time of each."""
        return {
            "is_enabled": self.is_enabled,
            "num_speculations": self.num_speculations,
            "num_commits": self.num_commits,
            "num_squashes": self.num_squashes,
            **self.total.report(),
            "workflows": {
                workflow.name: budget.report() | self._trials.get(workflow, _NEW_TRIAL).report()
                for workflow, budget in self._budgets.items()
            },
        }

    # Decisions

    def follow(self, point: BranchPoint, depth: int) -> list[Outcome]:
        """Returns the outcomes to follow at an open decision, the likeliest first; none if it does not pay.

        Args:
            depth: Open decisions the path has passed before this one.
        """
        if not self.is_enabled or depth >= self._config.max_depth or point.context is None or not point.decision.is_single:
            return []
        least = self._config.min_probability
        reach, repeated_s = point.segment.probability(), _rerun_s(point)
        if reach < least:
            return []
        is_guessing = point.segment.task.request.context.round.is_guessing
        chosen: list[Outcome] = []
        for predicted, probability in self._predictor.predict(point.decision, point.context).items():
            if reach * probability < least or len(chosen) == _MAX_BREADTH:
                break
            outcome = predicted
            if type(predicted) is not bool:
                outcome = exact(predicted)  # a predictor may return plain values
                if type(outcome) is Exact and not outcome.is_immutable:
                    continue
            risk_s = repeated_s if chosen else (1 - probability) * repeated_s
            if probability >= 1 or (is_guessing and self._payoff(point.decision.site, outcome).allows(risk_s)):
                point.probabilities[outcome] = probability
                chosen.append(outcome)
        if chosen and is_guessing:
            point.segment.task.request.context.round.has_guessed = True
        return chosen

    def learn_outcome(self, point: BranchPoint) -> None:
        """Learns from an open decision that was taken. A mutable outcome is left out: no other request may get it as a guess."""
        if not self.is_enabled or not point.decision.is_single:
            return
        if point.context is not None and point.error is None and is_immutable(point.outcome):
            self._predictor.observe(point.decision, point.context, point.outcome)

    def learn_payoffs(self, point: BranchPoint, gains_s: dict[Outcome, float], *, is_held: bool) -> None:
        """Learns what following outcomes of a decision has gained or cost, now that it is taken.

        Args:
            is_held: Whether a run goes on behind it. If not, another begins again.
        """
        first = next(iter(point.probabilities), None)
        for outcome, gain_s in gains_s.items():
            is_repeated = not is_held or outcome != first  # the first outcome is followed by the run that is there
            cost_s = _FOLLOW_COST_S + (_rerun_s(point) if is_repeated else 0.0)
            self._payoff(point.decision.site, outcome).add(gain_s - cost_s)

    def _payoff(self, site: DecisionSite, outcome: Outcome) -> _Payoff:
        payoff = self._payoffs.get((site, outcome))
        if payoff is None:
            if len(self._payoffs) > _MAX_PAYOFFS:
                self._payoffs.clear()
            payoff = self._payoffs[site, outcome] = _Payoff()
        return payoff

    # Device time

    def can_bet(self, call: Call, waste_s: float) -> bool:
        """Returns whether the budgets have room for a call with this expected waste."""
        return self.total.can_waste(waste_s) and call.context.budget.can_waste(waste_s)

    def place(self, call: Call, bet: Bet) -> None:
        """Books a call that runs before it is certain."""
        call.bet = bet
        self.num_speculations += 1
        for record in self._records(call):
            record.guesses.num_made += 1
        self.total.reserved_s += bet.waste_s
        call.context.budget.reserved_s += bet.waste_s

    def use(self, calls: Sequence[Call], share_s: float) -> None:
        """Books the device time of calls of one program that are needed."""
        if not calls:
            return
        self._statistics.of_program(calls[0].callee.name).guesses.useful_s += len(calls) * share_s
        numbers: dict[SpeculationBudget, int] = {}
        for call in calls:
            context = call.context
            numbers[context.budget] = numbers.get(context.budget, 0) + 1
            context.record.guesses.useful_s += share_s
        for budget, number in numbers.items():
            budget.use(number * share_s)
            self.total.use(number * share_s)

    def _records(self, call: Call) -> tuple[ModelRecord, ModelRecord]:
        """Returns where a call's guess is counted: for its program, and for its request's workflow."""
        return self._statistics.of_program(call.callee.name), call.context.record

    def win(self, call: Call) -> float:
        """Settles a bet on a call that is needed. Returns the gain in seconds."""
        bet = self._settle(call)
        self.num_commits += 1
        for record in self._records(call):
            record.guesses.num_committed += 1
        self.use([call], bet.share_s)
        return bet.saved_s

    def lose(self, call: Call) -> float:
        """Settles a bet on a call that is not needed. Returns the cost in seconds."""
        bet = self._settle(call)
        self.num_squashes += 1
        for record in self._records(call):
            record.guesses.num_squashed += 1
            record.guesses.wasted_s += bet.share_s
        self.total.waste(bet.share_s)
        call.context.budget.waste(bet.share_s)
        return bet.price_s

    def _settle(self, call: Call) -> Bet:
        bet = call.bet
        if bet is None:
            raise InternalError(f"{call!r} was not bet on")
        call.bet = None
        self.total.reserved_s -= bet.waste_s
        call.context.budget.reserved_s -= bet.waste_s
        return bet
