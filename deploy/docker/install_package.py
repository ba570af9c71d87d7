"""Installs wheels of DyOrc into /package, and lists all packages of the image there: python3 install_package.py WHEEL...

Runs while an image is built, in a stage with pip and cyclonedx-py in /opt/tools, whose environment sees all trees by trees.pth.
"""

import os
import subprocess
import sys

_TOOLS = "/opt/tools/bin"
_PYTHON = "/opt/dyorc/bin/python"
_DOCUMENTS = "/usr/share/doc/dyorc"


def main(wheels: list[str]) -> None:
    """Installs them."""
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
    subprocess.run([*install, "--root=/package", "--no-warn-script-location", *wheels], check=True)
    folder = f"/package{_DOCUMENTS}"
    os.makedirs(folder)
    write = [f"{_TOOLS}/cyclonedx-py", "environment", "--output-reproducible", f"--output-file={folder}/sbom.cdx.json"]
    subprocess.run([*write, _PYTHON], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
