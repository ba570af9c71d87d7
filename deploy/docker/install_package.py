"""Installs wheels of DyOrc into /package, and lists all packages of the image there: python3 install_package.py WHEEL...

Of the wheels of one project, the one with the compiled engine is taken if the image's Python can import it, else the pure one: it
may have been built for another Python, or on a system with a newer C library.

Runs while an image is built, in a stage with pip and cyclonedx-py in /opt/tools, whose environment sees all trees by trees.pth.
"""

import os
import shutil
import subprocess
import sys

_TOOLS = "/opt/tools/bin"
_PYTHON = "/opt/dyorc/bin/python"
_PACKAGE = "/package"
_DOCUMENTS = "/usr/share/doc/dyorc"
_PURE = "-none-any.whl"


def main(wheels: list[str]) -> None:
    """Installs them."""
    pure = [wheel for wheel in wheels if wheel.endswith(_PURE)]
    compiled = [wheel for wheel in wheels if not wheel.endswith(_PURE)]
    replaced = {_project(wheel) for wheel in compiled}
    if compiled and _is_installed([*compiled, *(wheel for wheel in pure if _project(wheel) not in replaced)]):
        print("the engine is compiled")
    else:
        shutil.rmtree(_PACKAGE, ignore_errors=True)
        if not _is_installed(pure):
            sys.exit(f"cannot install {' '.join(pure)}")
        print("the engine is pure Python")
    folder = f"{_PACKAGE}{_DOCUMENTS}"
    os.makedirs(folder)
    write = [f"{_TOOLS}/cyclonedx-py", "environment", "--output-reproducible", f"--output-file={folder}/sbom.cdx.json"]
    subprocess.run([*write, _PYTHON], check=True)


def _is_installed(wheels: list[str]) -> bool:
    """Installs wheels. Returns whether that went well, and the engine can be imported."""
    install = [
        f"{_TOOLS}/pip",
        "--python",
        _PYTHON,
        "install",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--no-index",
        "--no-deps",
    ]
    into = [f"--root={_PACKAGE}", "--no-warn-script-location"]
    if subprocess.run([*install, *into, *wheels], check=False).returncode:
        return False
    return subprocess.run([_PYTHON, "-B", "-c", "import dyorc.engine.engine"], check=False).returncode == 0


def _project(wheel: str) -> str:
    return os.path.basename(wheel).partition("-")[0]


if __name__ == "__main__":
    main(sys.argv[1:])
