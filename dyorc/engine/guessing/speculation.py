"""When to guess: which outcomes of an open decision are followed, and what may be spent on calls that are not certain.

Three limits keep guesses from doing harm. A call is run ahead of its decision only where the time it is expected to save
exceeds what others are expected to wait for it (`dyorc.engine.scheduling.bets` weighs that when batches are formed). Token
buckets, one for each workflow and one for all, bound the device time of wrong guesses. And an outcome whose calls did not
gain anything is not followed for a while, then tried again.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from dyorc.authoring.decisions import Site
from dyorc.authoring.workflow import Workflow
from dyorc.config import SpeculationConfig
from dyorc.engine.guessing.prediction import HistoryPredictor, Predictor
from dyorc.engine.model.budget import Bet, Budget
from dyorc.engine.model.calls import Call
from dyorc.engine.model.cells import Outcome
from dyorc.engine.model.journal import BranchPoint
from dyorc.errors import InternalError

_MAX_BREADTH = 4
"""How many outcomes of one decision are followed."""
_NUM_TRIALS = 64
_FIRST_PAUSE = 32
_MAX_PAYOFFS = 10_000
_MAX_PAUSE = 1024
_SCORE_RATE = 0.02
_FOLLOW_COST_S = 50e-6
"""What the orchestrator itself needs to follow an outcome, and to run the workflow again if it was wrong."""


class _Payoff:
    """What came of following one outcome of one site: seconds gained for each time it was followed, negative if it cost.

    It is followed a number of times on trial; then always, as long as it gains. If it does not, it is left alone for a while.
    """

    __slots__ = ("num_followed", "num_samples", "pause", "score_s", "skips")

    def __init__(self) -> None:
        self.score_s = 0.0
        self.num_followed = 0
        self.num_samples = 0
        self.pause = _FIRST_PAUSE
        self.skips = 0

    def allows(self) -> bool:
        """Whether to follow it this time."""
        if self.skips:
            self.skips -= 1
            return False
        self.num_followed += 1
        if self.num_followed > _NUM_TRIALS and self.score_s <= 0:
            # Results are still to come, and some may never: a request may be cancelled.
            self.skips, self.num_followed = _NUM_TRIALS, _NUM_TRIALS // 2
            return False
        return True

    def add(self, gain_s: float) -> None:
        """It was followed, and gained so much."""
        self.num_samples += 1
        self.score_s += max(_SCORE_RATE, 1 / self.num_samples) * (gain_s - self.score_s)
        if self.num_samples < _NUM_TRIALS:
            return
        if self.score_s > 0:
            self.skips = 0
            self.pause = _FIRST_PAUSE
        else:
            self._pause()

    def _pause(self) -> None:
        self.skips = self.pause
        self.pause = min(2 * self.pause, _MAX_PAUSE)
        self.num_followed = self.num_samples = 0
        self.score_s = 0.0


class Speculator:
    """Decides what is guessed, keeps count of it, and learns from how it went.

    Attributes:
        num_speculations: Calls that ran, or began to, before they were certain.
        num_commits: Those that turned out to be needed.
        num_squashes: Those that did not.
        total: The budget of all workflows together.
    """

    def __init__(self, config: SpeculationConfig, predictor: Predictor | None = None) -> None:
        self._config = config
        self._predictor: Predictor = HistoryPredictor() if predictor is None else predictor
        self._payoffs: dict[tuple[Site, Outcome], _Payoff] = {}
        self._budgets: dict[Workflow, Budget] = {}
        self.is_enabled = config.enabled
        self.total = Budget(config)
        self.num_speculations = 0
        self.num_commits = 0
        self.num_squashes = 0

    def budget(self, workflow: Workflow) -> Budget:
        """What requests of a workflow may waste."""
        budget = self._budgets.get(workflow)
        if budget is None:
            budget = self._budgets[workflow] = Budget(self._config)
        return budget

    def report(self) -> dict[str, Any]:
        """How guessing goes, as plain values: for all workflows together, and the device time for each."""
        return {
            "is_enabled": self.is_enabled,
            "num_speculations": self.num_speculations,
            "num_commits": self.num_commits,
            "num_squashes": self.num_squashes,
            **self.total.report(),
            "workflows": {workflow.name: budget.report() for workflow, budget in self._budgets.items()},
        }

    # Decisions

    def follow(self, point: BranchPoint, depth: int) -> list[Outcome]:
        """The outcomes under which to go on at an open decision, the likeliest first; none if it does not pay.

        Args:
            depth: Open decisions that the path has passed before this one.
        """
        if not self.is_enabled or depth >= self._config.max_depth or point.context is None:
            return []
        least = self._config.min_probability
        reach = point.segment.probability()
        if reach < least:
            return []
        chosen: list[Outcome] = []
        for outcome, probability in self._predictor.predict(point.decision, point.context).items():
            if reach * probability < least or len(chosen) == _MAX_BREADTH:
                break
            if probability >= 1 or self._payoff(point.decision.site, outcome).allows():
                point.probabilities[outcome] = probability
                chosen.append(outcome)
        return chosen

    def learn_outcome(self, point: BranchPoint) -> None:
        """A decision that was open has been taken."""
        if self.is_enabled and point.context is not None and point.error is None:
            self._predictor.observe(point.decision, point.context, point.outcome)

    def learn_payoff(self, site: Site, outcome: Outcome, gain_s: float) -> None:
        """An outcome was followed before it was known, and gained or cost so much."""
        self._payoff(site, outcome).add(gain_s - _FOLLOW_COST_S)

    def _payoff(self, site: Site, outcome: Outcome) -> _Payoff:
        payoff = self._payoffs.get((site, outcome))
        if payoff is None:
            if len(self._payoffs) > _MAX_PAYOFFS:
                self._payoffs.clear()
            payoff = self._payoffs[site, outcome] = _Payoff()
        return payoff

    # Device time

    def can_bet(self, call: Call, waste_s: float) -> bool:
        """Whether the budgets have room for a call that is expected to waste so much."""
        return self.total.can_waste(waste_s) and call.standing.budget.can_waste(waste_s)

    def place(self, call: Call, bet: Bet) -> None:
        """A call is run before it is certain."""
        call.bet = bet
        self.num_speculations += 1
        self.total.reserved_s += bet.waste_s
        call.standing.budget.reserved_s += bet.waste_s

    def use(self, calls: Iterable[Call], share_s: float) -> None:
        """Calls that are needed take so much device time each."""
        for budget, number in Counter([call.standing.budget for call in calls]).items():
            budget.use(number * share_s)
            self.total.use(number * share_s)

    def win(self, call: Call) -> float:
        """A call that was bet on is needed. Gives what that gained, in seconds."""
        bet = self._settle(call)
        self.num_commits += 1
        self.use([call], bet.share_s)
        return bet.saved_s

    def lose(self, call: Call) -> float:
        """A call that was bet on is not needed. Gives what that cost, in seconds."""
        bet = self._settle(call)
        self.num_squashes += 1
        self.total.waste(bet.share_s)
        call.standing.budget.waste(bet.share_s)
        return bet.price_s

    def _settle(self, call: Call) -> Bet:
        bet = call.bet
        if bet is None:
            raise InternalError(f"{call!r} was not bet on")
        call.bet = None
        self.total.reserved_s -= bet.waste_s
        call.standing.budget.reserved_s -= bet.waste_s
        return bet
