"""The requests of a workload with the reference's answers. They are computed once and kept in a folder that git ignores.

python -m benchmarks.table.pools cascade
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from benchmarks.serving import ROOT, BenchmarkError
from benchmarks.workloads import workload
from benchmarks.workloads.base import answer_alone
from loadgen.pool import Pool

_FOLDER = ROOT / "benchmarks" / ".pools"
_SEED = 1


def pool_file(name: str) -> Path:
    """Returns the file with a workload's pool. A separate process makes it if it is missing or out of date.

    Raises:
        BenchmarkError: If it cannot be made, with the reason.
    """
    path = _FOLDER / f"{name}-{_digest(name)}.npz"
    if not path.is_file():
        finished = subprocess.run(
            [sys.executable, "-m", "benchmarks.table.pools", name], cwd=ROOT, capture_output=True, text=True
        )
        if finished.returncode or not path.is_file():
            raise BenchmarkError(f"the requests of {name} could not be drawn: {finished.stderr.strip()[-2000:]}")
    return path


def _digest(name: str) -> str:
    """Returns a digest of all that a pool depends on: the workload's source, the examples that it uses, and all weights."""
    folders = [ROOT / "benchmarks" / "workloads" / name, ROOT / "examples"]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".safetensors")]
    digest = hashlib.sha256()
    for path in [ROOT / "benchmarks" / "workloads" / "base.py", *sorted(files)]:
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _make(name: str) -> Path:
    chosen = workload(name)
    requests = chosen.draw(chosen.num_drawn, _SEED)
    answers, branches = answer_alone(chosen, requests)
    path = _FOLDER / f"{name}-{_digest(name)}.npz"
    path.parent.mkdir(exist_ok=True)
    for old in path.parent.glob(f"{name}-*"):
        old.unlink()
    being_written = path.with_suffix(".part")
    Pool(inputs=requests, answers=answers, branches=branches, tolerance=chosen.tolerance).save(being_written)
    being_written.replace(path)
    return path


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(_make(each))
