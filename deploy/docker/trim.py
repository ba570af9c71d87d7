"""Takes out of a tree of installed packages what no program needs while it runs.

    python3 trim.py TREE

Runs while an image is built, with the standard library and binutils' strip. Nothing that Python code imports is removed, so a
package that is installed later finds whole libraries. Prints what went, in MB.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_REMOVED = {
    "torch/include": "headers, for C++ that is compiled",
    "torch/share/cmake": "the same",
    "torch/test": "torch's tests of its C++",
    "torch/bin/*[Tt]est*": "the same",
    "torch/bin/protoc*": "a compiler that torch's own build used",
    "torch/lib/lib*_test.so": "torch's tests",
    "ray/jars": "workers in Java",
    "ray/dashboard/client": "the page of Ray's dashboard, which Ray does without; DyOrc's page is /ui",
}
_TESTED = ("networkx", "numpy", "scipy", "sklearn", "sympy")
"""Packages whose folders `tests` are removed: those that are large."""
_KEPT = ("__init__.py", "_natype.py")
"""Of these folders: numpy.testing imports the second."""
_STRIPPED = ("torch/lib/libtorch_cpu.so", "torch/lib/libtorch_python.so", "torch/lib/libtorch_cuda.so", "uvloop/*.so")
"""Libraries with tables of symbols that only debuggers read. Ray's keep theirs: its crash reports name functions by them."""


def main(tree: Path) -> None:
    """Trims it."""
    (packages,) = tree.glob("opt/dyorc/lib/python3*/site-packages")
    for pattern in _REMOVED:
        for path in sorted(packages.glob(pattern)):
            _report(path.relative_to(packages), _size_bytes(path))
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in _TESTED:
        removed = list(_files_of_tests(packages / name))
        _report(Path(name, "**/tests"), sum(map(_size_bytes, removed)))
        for path in removed:
            path.unlink()
    for pattern in _STRIPPED:
        for path in sorted(packages.glob(pattern)):
            before = _size_bytes(path)
            subprocess.run(["strip", "--strip-unneeded", path], check=True)
            _report(path.relative_to(packages), before - _size_bytes(path))


def _files_of_tests(package: Path) -> Iterator[Path]:
    for folder in package.glob("**/tests"):
        yield from (path for path in folder.rglob("*") if path.is_file() and path.name not in _KEPT)


def _size_bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in ([path] if path.is_file() else path.rglob("*")) if each.is_file())


def _report(path: Path, num_bytes: int) -> None:
    if num_bytes:
        print(f"{num_bytes / 1e6:8.1f} MB  {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
