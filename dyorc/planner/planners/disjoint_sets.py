"""Disjoint sets of names (union-find)."""

from collections.abc import Iterable


class DisjointSets:
    """Disjoint sets of names, by union and find."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Adds a name as a set of its own."""
        self._above.setdefault(name, name)

    def union(self, name: str, other: str) -> None:
        """Unites the sets of two names."""
        self.add(name)
        self.add(other)
        self._above[self.find(name)] = self.find(other)

    def sets(self) -> Iterable[list[str]]:
        """Returns the sets, in the order in which names were added."""
        members: dict[str, list[str]] = {}
        for name in self._above:
            members.setdefault(self.find(name), []).append(name)
        return members.values()

    def find(self, name: str) -> str:
        """Returns the representative of a name's set."""
        self.add(name)
        while self._above[name] != name:
            self._above[name] = self._above[self._above[name]]
            name = self._above[name]
        return name
