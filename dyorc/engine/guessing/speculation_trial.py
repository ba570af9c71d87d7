"""Whether guessing pays, measured: some requests go without guesses, and the times of both kinds are compared.

What a guess costs is only estimated when a batch is formed. The estimate leaves out the orchestrator's own work, that batches
become smaller, and what else uses the machine; where programs take little time, that is most of the cost. So the requests of a
workflow are divided into rounds. At first all guess. Then rounds with and without guesses alternate until the difference of their
mean times is clear; the better mode is kept, and after a pause they are compared again. A pause is twice as long as the last one
if the result is the same. Changing the mode takes more evidence than keeping it.

Times are compared by their logarithms, so that a short request that became slower by a tenth counts as much as a long one. The
two rounds of a pair follow each other, and which is first alternates, so that a machine that becomes slower, or a rate that
grows, affects both.

Source: set dueling runs two policies on samples and uses the better one (Qureshi et al.: "Adaptive insertion
policies for high performance caching", ISCA 2007). There, samples are taken at the same time; here, requests without guesses
would suffer from the guesses of others.
"""

import math

from dyorc.engine.model.speculation_budget import Round

_FIRST_PAUSE = 8
"""Rounds in which all guess before the first comparison; latencies and probabilities are learned meanwhile."""
_MAX_PAUSE = 512
_MIN_PAIRS = 2
"""Pairs of rounds after which the mode is kept if it seems better by one standard error."""
_MIN_PAIRS_TO_CHANGE = 4
_MAX_PAIRS = 16
_MAX_OPEN = 16
"""Most rounds with unfinished requests. Beyond that the oldest are given up: some requests take very long."""
_CLEAR = 2.5
"""How many standard errors the other mode must be better by to be adopted."""


class SpeculationTrial:
    """Says which requests of a workflow guess.

    Attributes:
        is_guessing: Whether they guess, except in rounds of a comparison.
        ratio: The time of requests with guesses relative to those without, in the last comparison; None before the first.
    """

    def __init__(self) -> None:
        self.is_guessing = True
        self.ratio: float | None = None
        self._round: Round | None = None
        self._pause = _FIRST_PAUSE
        self._num_left = _FIRST_PAUSE
        self._open: list[Round] = []
        """The rounds that are compared, in pairs, the oldest first."""
        self._differences: list[float] = []

    def admit(self, now_ns: int) -> Round:
        """Returns the round of a request that arrives now."""
        current = self._round
        if current is None or current.is_over(now_ns):
            current = self._round = self._next(current, now_ns)
        current.num_arrived += 1
        return current

    def report(self) -> dict[str, bool | float | None]:
        """Returns the result as plain values."""
        return {"is_guessing": self.is_guessing, "time_ratio": None if self.ratio is None else round(self.ratio, 3)}

    def _next(self, last: Round | None, now_ns: int) -> Round:
        if last is not None:
            last.is_closed = True
            if self._num_left:
                # Without guesses there is nothing to compare.
                self._num_left -= 1 if last.has_guessed or not self.is_guessing else 0
                return Round(self.is_guessing, now_ns)
            self._read()
        if self._num_left:
            return Round(self.is_guessing, now_ns)
        if len(self._open) >= _MAX_OPEN:
            del self._open[:2]
        at = (len(self._open) + 2 * len(self._differences)) % 4
        following = Round(at in (0, 3), now_ns)
        self._open.append(following)
        return following

    def _read(self) -> None:
        """Compares the pairs whose requests have all ended."""
        while len(self._open) >= 2 and (first := self._open[0].mean) is not None and (second := self._open[1].mean) is not None:
            self._differences.append(first - second if self._open[0].is_guessing else second - first)
            del self._open[:2]
            self._decide()

    def _decide(self) -> None:
        """Keeps or changes the mode, if it is clear enough which is better."""
        number = len(self._differences)
        if number < _MIN_PAIRS:
            return
        mean = sum(self._differences) / number
        is_kept = (mean <= 0) is self.is_guessing
        if number < _MAX_PAIRS:
            variance = sum([(each - mean) ** 2 for each in self._differences]) / (number - 1)
            least = 1.0 if is_kept else _CLEAR
            if (not is_kept and number < _MIN_PAIRS_TO_CHANGE) or mean * mean * number <= least * least * variance:
                return
        self.is_guessing = mean <= 0
        self.ratio = math.exp(mean)
        self._pause = min(2 * self._pause, _MAX_PAUSE) if is_kept else _FIRST_PAUSE
        self._num_left = self._pause
        self._open.clear()
        self._differences.clear()
