"""Draws what happens next, so that each kind of fault of a shape has its turn as often as the others."""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

WHOLE = "whole"
"""The part that all of a shape is: nothing else happens together with a fault of it."""
_MAX_TOGETHER = 4
_ANOTHER_SHARE = 0.85
"""How probable it is that a part that could be struck meanwhile is."""


@dataclass
class Turns:
    """What has happened so far, and what is next.

    Attributes:
        num_times: How often each kind has been drawn.
    """

    chance: random.Random
    num_times: Counter[str] = field(default_factory=Counter[str])

    def draw(self, possible: Mapping[str, Collection[str]]) -> list[str]:
        """Returns kinds of faults that happen together, one of a part at most. Each is one that was drawn least.

        Args:
            possible: Kinds by the part of the shape that they strike.

        Raises:
            ValueError: If nothing is possible.
        """
        kinds = {kind: part for part, names in possible.items() for kind in names}
        if not kinds:
            raise ValueError("no fault is possible, expected at least one")
        first = self._rarest(sorted(kinds))
        drawn = [first]
        others = sorted(possible.keys() - {kinds[first], WHOLE}) if kinds[first] != WHOLE else []
        self.chance.shuffle(others)
        for part in others:
            another = self._rarest(sorted(possible[part])) if possible[part] else first
            is_due = self.num_times[another] <= self.num_times[first]
            if another != first and is_due and len(drawn) < _MAX_TOGETHER and self.chance.random() < _ANOTHER_SHARE:
                drawn.append(another)
        self.num_times.update(drawn)
        return drawn

    def _rarest(self, kinds: Sequence[str]) -> str:
        least = min(self.num_times[kind] for kind in kinds)
        return self.chance.choice([kind for kind in kinds if self.num_times[kind] == least])
