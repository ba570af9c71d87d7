"""Keeps the number of a label's values bounded, whatever their origin."""

MAX_TENANTS = 100
"""Tenants that a process tells apart in metrics."""
OTHER = "other"


class BoundedLabels:
    """The first names that come are told apart, all further ones are one: `OTHER`.

    A name keeps its place for good, since counters must never go back: by "the largest so far", names would move between a series
    of their own and the common one.

    Args:
        max_names: How many are told apart.
    """

    def __init__(self, max_names: int = MAX_TENANTS) -> None:
        self._max_names = max_names
        self._names: set[str] = set()

    def label_of(self, name: str) -> str:
        """Returns the label's value for a name."""
        if name in self._names:
            return name
        if len(self._names) >= self._max_names:
            return OTHER
        self._names.add(name)
        return name
