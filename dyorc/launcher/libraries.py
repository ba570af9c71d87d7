"""What the user's modules import, so that fork servers can import it ahead. The user's own modules they must not."""

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass

_LIBRARY_FOLDERS = ("/site-packages/", "/dist-packages/")
_APART = ("dyorc", "numpy", "ray", "torch")
"""Imported ahead anyway, or, like Ray, not made to be forked."""


@dataclass(frozen=True, slots=True)
class Imports:
    """What the user's modules have imported.

    Attributes:
        libraries: Modules of libraries, in the order in which they were imported.
        has_ray: Whether Ray is among them: replicas that use it have to wait for it.
    """

    libraries: tuple[str, ...] = ()
    has_ray: bool = False

    @classmethod
    def since(cls, before: Collection[str], targets: Sequence[str]) -> "Imports":
        """Returns what has been imported.

        Args:
            before: Names of modules that were imported before.
            targets: What the user serves; what is served is not a library, even if it is installed like one.
        """
        apart = {*_APART, *(target.partition(":")[0].partition(".")[0] for target in targets)}
        new = [name for name in sys.modules if name not in before]
        libraries = tuple(name for name in new if name.partition(".")[0] not in apart and _is_library(name))
        return cls(libraries, "ray" in new)


def _is_library(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(file, str) and any(folder in file for folder in _LIBRARY_FOLDERS)
