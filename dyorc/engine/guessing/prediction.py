"""Predicts decisions from earlier ones.

As in branch predictors, the context is the site and the path history: how many times the run has been here, and its last
outcomes. So each turn of a loop has its own odds. A context keeps a Dirichlet posterior with exponential decay, which follows
drift; rarely seen contexts lean on the site's overall distribution, and that on a neutral prior or the author's hint.

Source: two-level branch prediction (Yeh and Patt, MICRO 1991); the shrinkage of a context towards its site is the mean of a
hierarchical Dirichlet model.
"""

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from dyorc.authoring.decisions import Decision, DecisionKind, DecisionSite
from dyorc.authoring.exact_values import exact
from dyorc.engine.model.futures import Outcome
from dyorc.engine.model.journal import Context

Distribution: TypeAlias = Mapping[Outcome, float]

_DECAY = 0.995
"""Weight that an observation keeps when the next one of its kind comes."""
_SITE_WEIGHT = 6.0
"""How many observations the site's overall distribution counts for within a context."""
_PRIOR_WEIGHT = 2.0
"""How many observations a neutral prior counts for."""
_HINT_WEIGHT = 8.0
"""How many observations the author's hint counts for."""
_HINT_PROBABILITY = 0.9
_MAX_AGE = 16
"""A distribution is recomputed after at most this many observations."""
_MAX_CONTEXTS = 10_000
"""Contexts kept. Bounds the memory of a key with endlessly many outcomes."""


class Predictor(Protocol):
    """Predicts decisions before the engine guesses."""

    def predict(self, decision: Decision, context: Context) -> Distribution:
        """Returns probabilities of the outcomes, the likeliest first; they sum to at most 1. One of exactly 1 counts as known."""
        ...

    def observe(self, decision: Decision, context: Context, outcome: Outcome) -> None:
        """Learns the outcome of a decision."""
        ...


class _Counts:
    """Decayed counts of outcomes. The decay is lazy: weights grow instead of all counts shrinking.

    Attributes:
        cached: The distribution as it was `age` observations ago.
    """

    __slots__ = ("age", "by_outcome", "cached", "num_seen", "total", "weight")

    def __init__(self) -> None:
        self.by_outcome: dict[Outcome, float] = {}
        self.total = 0.0
        self.weight = 1.0
        self.num_seen = 0
        self.age = 0
        self.cached: Distribution | None = None

    def add(self, outcome: Outcome) -> None:
        self.weight = weight = self.weight / _DECAY
        self.by_outcome[outcome] = self.by_outcome.get(outcome, 0.0) + weight
        self.total += weight
        self.num_seen += 1
        self.age += 1
        if weight > 1e9:
            self.by_outcome = {key: count / self.weight for key, count in self.by_outcome.items() if count > 1e-4 * self.weight}
            self.total = sum(self.by_outcome.values())
            self.weight = 1.0

    def is_stale(self) -> bool:
        """Returns whether to recompute `cached`: an eighth of all observations is new, or 16 are."""
        return self.age >= min(_MAX_AGE, 1 + self.num_seen // 8)

    def posterior(self, prior: Distribution, strength: float) -> dict[Outcome, float]:
        """Returns the mean under a prior that counts for `strength` observations."""
        size = self.total + strength * self.weight
        counts = {outcome: strength * self.weight * p for outcome, p in prior.items()}
        for outcome, count in self.by_outcome.items():
            counts[outcome] = counts.get(outcome, 0.0) + count
        return {outcome: count / size for outcome, count in counts.items()}


class HistoryPredictor:
    """Learns from every decision of every request.

    Cost: constant for a decision, and now and then proportional to the outcomes that its site has had. A new site also visits
    the others, and drops those whose version has left.
    """

    def __init__(self) -> None:
        self._sites: dict[DecisionSite, _Counts] = {}
        self._contexts: dict[Context, _Counts] = {}

    def predict(self, decision: Decision, context: Context) -> Distribution:
        """Returns probabilities of the outcomes, the likeliest first."""
        counts = self._contexts.get(context)
        if counts is not None and counts.cached is not None and not counts.is_stale():
            return counts.cached
        prior, strength = _prior(decision)
        site = self._sites.get(decision.site)
        if site is not None:
            prior, strength = site.posterior(prior, strength), _SITE_WEIGHT
        distribution = prior if counts is None else counts.posterior(prior, strength)
        ordered = dict(sorted(distribution.items(), key=lambda item: -item[1]))
        if counts is not None:
            counts.cached, counts.age = ordered, 0
        return ordered

    def observe(self, decision: Decision, context: Context, outcome: Outcome) -> None:
        """Takes in the outcome of a decision."""
        if decision.site not in self._sites:
            self._sites = {site: counts for site, counts in self._sites.items() if site.code is not None}
            self._sites[decision.site] = _Counts()
        self._sites[decision.site].add(outcome)
        counts = self._contexts.get(context)
        if counts is None:
            if len(self._contexts) >= _MAX_CONTEXTS:
                self._contexts.clear()
            counts = self._contexts[context] = _Counts()
        counts.add(outcome)


def _prior(decision: Decision) -> tuple[Distribution, float]:
    """Returns the belief before any observation, and how many observations it counts for."""
    is_binary = decision.kind is DecisionKind.WHEN
    if decision.likely is None:
        return ({True: 0.5, False: 0.5} if is_binary else {}), _PRIOR_WEIGHT
    if is_binary:
        likely = bool(decision.likely)
        return {likely: _HINT_PROBABILITY, not likely: 1 - _HINT_PROBABILITY}, _HINT_WEIGHT
    return {exact(decision.likely): _HINT_PROBABILITY}, _HINT_WEIGHT
