"""Checks of what runs programs: Ray, and GPUs with torch. Neither is imported: that would take seconds."""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from dyorc.doctor.finding import Finding, Subject, error, ok, warning
from dyorc.doctor.libraries import installed_version
from dyorc.system.extras import command_for

_TIMEOUT_S = 1.0
_TOOL_TIMEOUT_S = 10.0
_CUDA_OF_TORCH = re.compile(r"^cuda: .*= '([\d.]+)'", re.MULTILINE)
_CUDA_OF_DRIVER = re.compile(r"CUDA Version: ([\d.]+)")


def check_ray(subject: Subject) -> Iterator[Finding]:
    """Says which Ray would run the programs, and whether its cluster can be reached."""
    installed = installed_version("ray")
    if installed is None:
        yield ok(f"Ray is not installed: serve with --in-process, or {command_for('ray')}")
        return
    address = subject.settings.deployment.ray_address
    if not address:
        foreign = os.environ.get("RAY_ADDRESS", "")
        yield ok(f"Ray {installed}; servers start one of their own, without usage statistics")
        if foreign:
            yield warning(
                f"RAY_ADDRESS is {foreign}, and servers do not use that cluster",
                "set DYORC_DEPLOYMENT__RAY_ADDRESS to run replicas there, or unset RAY_ADDRESS",
            )
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_S).close()
    except (OSError, ValueError) as problem:
        yield error(
            f"the Ray cluster at {address} cannot be reached: {problem}",
            "start it, or correct DYORC_DEPLOYMENT__RAY_ADDRESS (host:port)",
        )
    else:
        yield ok(f"Ray {installed}; the cluster at {address} takes connections")


def check_gpus(_: Subject) -> Iterator[Finding]:
    """Says which GPUs there are, and whether the installed torch can use them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        if Path("/proc/driver/nvidia/version").exists():
            yield warning("there is a driver for NVIDIA's GPUs and no nvidia-smi", "in a container: run it with --gpus all")
        else:
            yield ok("no GPU of NVIDIA is seen here")
        return
    query = [tool, "--query-gpu=index,name,memory.total,driver_version,mig.mode.current", "--format=csv,noheader"]
    try:
        rows = subprocess.run(query, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=True).stdout.splitlines()
        text = subprocess.run([tool], capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError) as problem:
        yield error(
            f"nvidia-smi fails: {problem}", "install a driver that fits the kernel; in a container, run it with --gpus all"
        )
        return
    for row in rows:
        yield ok(f"GPU {row.strip()}")
    driver = _CUDA_OF_DRIVER.search(text)
    yield _torch_finding(driver[1] if driver else "")


def _torch_finding(driver_cuda: str) -> Finding:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ok(f"torch is not installed; for programs of torch: {command_for('torch')}")
    cuda = _CUDA_OF_TORCH.search((Path(spec.origin).parent / "version.py").read_text())
    if cuda is None:
        return warning(
            "torch is a build without CUDA: programs run on the CPU",
            "install torch's CUDA build: `pip install --force-reinstall torch`",
        )
    if driver_cuda and _number(cuda[1]) > _number(driver_cuda):
        return error(
            f"torch is built for CUDA {cuda[1]}, and the driver knows CUDA up to {driver_cuda}",
            "update the driver, or install a torch that is built for an older CUDA",
        )
    return ok(f"torch is built for CUDA {cuda[1]}, the driver knows {driver_cuda or 'an unknown version'}")


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
