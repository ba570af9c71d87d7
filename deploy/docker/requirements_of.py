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


def requirements_of(wheel: str, extras: set[str]) -> Iterator[str]:
    """Yields what the wheel needs with these extras.

    Raises:
        SystemExit: If the wheel has no such extra.
    """
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    if unknown := extras - set(metadata.get_all("Provides-Extra", [])):
        sys.exit(f"{wheel} has no extra {', '.join(sorted(unknown))}")
    for line in metadata.get_all("Requires-Dist", []):
        requirement, _, condition = line.partition(";")
        found = _EXTRA.search(condition)
        if found is None or found["name"] in extras:
            rest = _EXTRA.sub("", condition).strip()
            yield f"{requirement.strip()}; {rest}" if rest else requirement.strip()


if __name__ == "__main__":
    print("\n".join(requirements_of(sys.argv[1], set(filter(None, sys.argv[2].split(","))))))
