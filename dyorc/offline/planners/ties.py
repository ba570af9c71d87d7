"""Sets of names that belong together."""

from collections.abc import Iterable


class DisjointSets:
    """Ties names together, by union and find."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Makes a name known, tied to nothing."""
        self._above.setdefault(name, name)

    def union(self, one: str, other: str) -> None:
        """Ties two names, and all that are tied to them."""
        self.add(one)
        self.add(other)
        self._above[self.find(one)] = self.find(other)

    def sets(self) -> Iterable[list[str]]:
        """Returns the names that belong together, in the order in which they became known."""
        found: dict[str, list[str]] = {}
        for name in self._above:
            found.setdefault(self.find(name), []).append(name)
        return found.values()

    def find(self, name: str) -> str:
        """Returns the name that stands for all that are tied to one."""
        self.add(name)
        while self._above[name] != name:
            self._above[name] = self._above[self._above[name]]
            name = self._above[name]
        return name
