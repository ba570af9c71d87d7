"""Triton's own program from PyTriton's wheel, with the Python back end but without PyTriton."""
# pyright: basic

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from benchmarks.processes import end_children

STOP_TIMEOUT_S = 20.0


@contextmanager
def tritonserver(folder: Path, options: Sequence[str]) -> Generator[subprocess.Popen[bytes]]:
    """Runs Triton while entered. Afterwards none of its processes or shared memory is left.

    Args:
        folder: A temporary folder of the caller's; the model repository is ``models`` in it.
        options: Options of the program, e.g. its ports. It listens on loopback only.
    """
    package = _package()
    prefix = f"benchmark-{uuid.uuid4().hex[:12]}"
    command = [
        str(package / "bin" / "tritonserver"),
        f"--model-repository={folder / 'models'}",
        f"--backend-directory={_backends(package, folder)}",
        f"--backend-config=python,shm-region-prefix-name={prefix}",
        *("--http-address=127.0.0.1", "--grpc-address=127.0.0.1"),
        *("--log-warning=false", "--allow-metrics=false", "--log-info=false", *options),
    ]
    # By these the back end's processes find the interpreter, its libpython and packages, and the benchmark's own code.
    environment = os.environ | {
        "LD_LIBRARY_PATH": f"{libpython_folder()}:{_shared_libraries(package)}",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH", "")])),
    }
    # In its own group, so that Ctrl-C reaches only this process, which then ends Triton.
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, process_group=0)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        end_children(STOP_TIMEOUT_S)
        for left in Path("/dev/shm").glob(f"{prefix}*"):
            left.unlink(missing_ok=True)


def free_ports(num: int) -> list[int]:
    """Returns ports that are free now, since Triton cannot choose free ports itself."""
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.socket()) for _ in range(num)]
        for listener in opened:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in opened]


def libpython_folder() -> str:
    """Returns the folder of the interpreter's own libpython; back ends must not load the system's."""
    return sysconfig.get_config_var("LIBDIR") or ""


def _backends(package: Path, folder: Path) -> Path:
    """Puts the Python back end together with the program that fits this interpreter; in the package, they are in different
    places."""
    backends = folder / "backends"
    shutil.copytree(package / "backends" / "python", backends / "python")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy(package / "python_backend_stubs" / version / "triton_python_backend_stub", backends / "python")
    return backends


def _package() -> Path:
    spec = find_spec("pytriton")
    if spec is None or spec.origin is None:
        sys.exit(f"{sys.executable} has no nvidia-pytriton")
    return Path(spec.origin).parent / "tritonserver"


def _shared_libraries(package: Path) -> Path:
    """Returns where the wheel keeps the libraries that the server is linked with; an unrepaired wheel has them elsewhere."""
    repaired = package.parent.parent / "nvidia_pytriton.libs"
    return repaired if repaired.is_dir() else package / "external_libs"
