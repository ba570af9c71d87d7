"""Finds the libraries that the user's modules import, so that fork servers can import them ahead, but not the user's modules."""

import hashlib
import sys
import sysconfig
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

_LIBRARY_FOLDERS = ("/site-packages/", "/dist-packages/")
_APART = ("dyorc", "numpy", "ray", "torch")
"""Packages that are imported ahead anyway, or, like Ray, do not survive a fork."""


@dataclass(frozen=True, slots=True)
class UserImports:
    """What the user's modules have imported.

    Attributes:
        libraries: Modules of libraries, in the order of their imports.
        has_ray: Whether Ray is among them: replicas that use it must wait for it.
        code: A digest of the user's own modules on disk.
    """

    libraries: tuple[str, ...] = ()
    has_ray: bool = False
    code: str = ""

    @classmethod
    def since(cls, before: Collection[str], targets: Sequence[str]) -> "UserImports":
        """Returns what was imported since then.

        Args:
            before: Names of modules that were imported before.
            targets: What the user serves; its modules are not libraries, even if they are installed like one.
        """
        apart = {*_APART, *(target.partition(":")[0].partition(".")[0] for target in targets)}
        new = [name for name in sys.modules if name not in before]
        libraries = tuple(name for name in new if name.partition(".")[0] not in apart and _is_library(name))
        return cls(libraries, "ray" in new, _digest([name for name in new if _is_users(name)]))


def _is_library(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(file, str) and any(folder in file for folder in _LIBRARY_FOLDERS)


def _is_users(name: str) -> bool:
    """Returns whether a module is the user's own: neither ours, nor a library's, nor Python's."""
    file = getattr(sys.modules.get(name), "__file__", None)
    is_python = isinstance(file, str) and file.startswith(sysconfig.get_path("stdlib"))
    return isinstance(file, str) and not is_python and not _is_library(name) and name.partition(".")[0] != "dyorc"


def _digest(names: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(names):
        path = Path(str(sys.modules[name].__file__))
        digest.update(f"{name}\n".encode() + (path.read_bytes() if path.is_file() else b""))
    return digest.hexdigest()
