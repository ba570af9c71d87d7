"""What each extra of dyorc-core costs: the sizes of all wheels that pip would download, and of what they install.

    python -m benchmarks.package_sizes [--wheel WHEEL] [--extra traces,all] [--find-links FOLDER] [--constraint FILE]

pip resolves each set of requirements as for an empty environment of this Python and platform, and downloads its wheels. The
installed size is that of the files in them: what Python compiles when it imports them (`__pycache__`) adds about a third to pure
Python. Progress goes to stderr. The last line of stdout is one JSON object: for each extra its bytes, and its largest wheels.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_EXTRAS = ("", "ray", "torch", "redis", "planner", "traces", "profile", "simulation", "ray,torch,redis", "all")
"""The core alone, each extra, and together what the metapackage `dyorc` asks for."""
_NUM_LARGEST = 6


@dataclass(frozen=True, slots=True)
class WheelSize:
    """One wheel, and what its files take once they are installed."""

    name: str
    download_bytes: int
    installed_bytes: int


def main() -> None:
    """Prints a table and the JSON object."""
    arguments = _parse()
    rows: dict[str, Any] = {}
    print("| `dyorc-core` with | packages | download | installed | largest, MB installed |\n|---|---|---|---|---|", flush=True)
    for extra in arguments.extra:
        print(f"{extra or 'the core'} ...", file=sys.stderr)
        name = extra or "core"
        row = rows[name] = _row(closure(arguments.wheel, extra, arguments.options))
        largest = ", ".join(f"{each['name']} {_megabytes(each['installed_bytes'])}" for each in row["largest"][:3])
        sizes = f"{_megabytes(row['download_bytes'])} MB | {_megabytes(row['installed_bytes'])} MB"
        print(f"| {name} | {row['num_packages']} | {sizes} | {largest} |", flush=True)
    print(json.dumps({"benchmark": "package_sizes", "python": sys.version.split()[0], "extras": rows}))


def closure(wheel: Path, extra: str, options: Sequence[str]) -> list[WheelSize]:
    """Returns all wheels that an installation of a wheel with an extra needs, itself included, the largest first.

    Args:
        options: Further options of pip.

    Raises:
        subprocess.CalledProcessError: If pip finds no such set of wheels.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = f"{wheel}[{extra}]" if extra else str(wheel)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", folder]
        subprocess.run([*command, *options, target], check=True, stdout=sys.stderr)
        sizes = [_size(path) for path in Path(folder).glob("*.whl")]
    return sorted(sizes, key=lambda size: -size.installed_bytes)


def _size(path: Path) -> WheelSize:
    with zipfile.ZipFile(path) as archive:
        installed_bytes = sum(each.file_size for each in archive.infolist())
    return WheelSize(path.name.partition("-")[0], path.stat().st_size, installed_bytes)


def _row(wheels: Sequence[WheelSize]) -> Mapping[str, Any]:
    return {
        "num_packages": len(wheels),
        "download_bytes": sum(each.download_bytes for each in wheels),
        "installed_bytes": sum(each.installed_bytes for each in wheels),
        "largest": [
            {"name": each.name, "download_bytes": each.download_bytes, "installed_bytes": each.installed_bytes}
            for each in wheels[:_NUM_LARGEST]
        ],
    }


def _megabytes(size_bytes: int) -> str:
    megabytes = size_bytes / 1e6
    return f"{megabytes:,.0f}" if megabytes >= 10 else f"{megabytes:.1f}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.package_sizes")
    built = sorted(Path("dist").glob("dyorc_core-*.whl"))
    parser.add_argument("--wheel", type=Path, default=built[0] if built else None, help="by default the compiled one in dist/")
    parser.add_argument("--extra", action="append", help="names with commas between them; may be repeated; by default all")
    parser.add_argument("--find-links", action="append", default=[])
    parser.add_argument("--constraint", action="append", default=[])
    arguments = parser.parse_args()
    if arguments.wheel is None:
        parser.error("there is no wheel in dist/: run `make dist`")
    arguments.extra = arguments.extra or list(_EXTRAS)
    pairs = [("--find-links", each) for each in arguments.find_links] + [("--constraint", each) for each in arguments.constraint]
    arguments.options = [word for pair in pairs for word in pair]
    return arguments


if __name__ == "__main__":
    main()
