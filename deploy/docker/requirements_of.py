"""Prints what a wheel asks for, one requirement a line.

python3 requirements_of.py WHEEL EXTRA,EXTRA

Runs while an image is built, with nothing but the standard library. Conditions on Python and platform stay where they are:
pip, which reads the lines, knows both.
"""

import re
import sys
import zipfile
from collections.abc import Iterator
from email import message_from_bytes

_EXTRA = re.compile(r"""\s*(?:and\s+)?extra\s*==\s*['"](?P<name>[^'"]+)['"]""")
_ITSELF = re.compile(r"(?P<name>[A-Za-z0-9._-]+)\[(?P<extras>[^]]+)\]")


def requirements_of(wheel: str, extras: set[str]) -> Iterator[str]:
    """Yields what the wheel needs with these extras, and with those that they include.

    Raises:
        SystemExit: If the wheel has no such extra.
    """
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    if unknown := extras - set(metadata.get_all("Provides-Extra", [])):
        sys.exit(f"{wheel} has no extra {', '.join(sorted(unknown))}")
    lines = [_parsed(line) for line in metadata.get_all("Requires-Dist", [])]
    wanted: set[str] = set()
    while more := extras - wanted:
        wanted |= more
        extras = {
            included for requirement, extra, _ in lines if extra in more for included in _included(requirement, metadata["Name"])
        }
    for requirement, extra, condition in lines:
        if (extra is None or extra in wanted) and not _included(requirement, metadata["Name"]):
            yield f"{requirement}; {condition}" if condition else requirement


def _parsed(line: str) -> tuple[str, str | None, str]:
    """Returns a requirement, the extra that it belongs to, and its other conditions."""
    requirement, _, condition = line.partition(";")
    extra = _EXTRA.search(condition)
    return requirement.strip(), extra and extra["name"], _EXTRA.sub("", condition).strip()


def _included(requirement: str, name: str) -> set[str]:
    """Returns the extras of the wheel itself that a requirement names, as in `dyorc-core[torch]`."""
    itself = _ITSELF.fullmatch(requirement)
    return set(itself["extras"].split(",")) if itself and itself["name"] == name else set()


if __name__ == "__main__":
    print("\n".join(requirements_of(sys.argv[1], set(filter(None, sys.argv[2].split(","))))))
