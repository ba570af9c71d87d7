"""Describes the machine and software of a measurement."""

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dyorc.system.processors import num_processors

_PACKAGES = ("dyorc-core", "grpcio", "httptools", "numpy", "uvloop")


def machine() -> dict[str, Any]:
    """Returns processor, cores, memory and kernel."""
    return {
        "processor": _processor(),
        "num_cores": num_processors(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
    }


def versions(packages: Sequence[str] = _PACKAGES) -> dict[str, str]:
    """Returns the versions of Python and of those packages that are installed."""
    installed = {"python": platform.python_version()}
    for package in packages:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def commit() -> str:
    """Returns the commit of the repository in the current folder; empty if there is none."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
