"""How each server of docs/compare is started, and asked, by `python -m tests.moving`."""

import os
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that answers the pages' pipeline.

    Attributes:
        package: Its distribution, whose version is shown.
        route: Where it takes requests.
        command: Returns its command line, given the interpreter of its environment, the folder of its files and a free port.
        is_oip: Whether a request is one of the Open Inference Protocol; otherwise it is `{"image": [...]}`.
    """

    package: str
    route: str
    command: Callable[[str, Path, int], Sequence[str]]
    is_oip: bool = False


def python_of(name: str) -> str:
    """Returns the interpreter that has the server called `name`: our own, or that of its environment."""
    if name in ("index", "ray-serve"):
        return sys.executable
    return str(ROOT / ".venv-moving" / name / "bin" / "python")


def _ray(python: str, folder: Path, port: int) -> Sequence[str]:
    code = (
        "import os, sys, ray; sys.path.insert(0, os.getcwd()); from ray import serve; import app;"
        "ray.init(address='local', include_dashboard=False, num_cpus=4, runtime_env={'env_vars': {'PYTHONPATH': os.getcwd()}});"
        f"serve.start(http_options={{'host': '127.0.0.1', 'port': {port}}}); serve.run(app.app, blocking=True)"
    )
    return [python, "-c", code]


def _litserve(python: str, folder: Path, port: int) -> Sequence[str]:
    app = folder / "app.py"  # the page has the port that a user takes
    app.write_text(app.read_text().replace("port=8000", f"port={port}"))
    return [python, "app.py"]


def _triton(python: str, folder: Path, port: int) -> Sequence[str]:
    models = folder / "models"
    for name in ("small", "classify"):
        shutil.move(folder / name, models / name)
    shutil.copytree(models / "small", models / "large")
    for path in (models / "large" / "config.pbtxt", models / "large" / "1" / "model.py"):
        path.write_text(path.read_text().replace("models.small", "models.large"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        grpc_port = listener.getsockname()[1]
    code = (
        f"import os, pathlib, sys; sys.path.insert(0, {str(ROOT)!r}); os.environ['PYTHONPATH'] = {str(folder)!r};"
        "from benchmarks.peers.triton.tritonserver import tritonserver\n"
        f"with tritonserver(pathlib.Path({str(folder)!r}), ['--http-port={port}', '--grpc-port={grpc_port}']) as server:\n"
        "    server.wait()"
    )
    return [python, "-c", code]


SERVERS = {
    "index": Server(
        package="dyorc-core",
        route="/v2/models/classify/infer",
        is_oip=True,
        command=lambda python, _, port: [
            *(python, "-m", "dyorc.cli.main", "serve", "app.py:classify"),
            *("--in-process", "--port", str(port)),
        ],
    ),
    "ray-serve": Server(package="ray", route="/", command=_ray),
    "litserve": Server(package="litserve", route="/predict", command=_litserve),
    "mosec": Server(
        package="mosec",
        route="/inference",
        command=lambda python, _, port: [python, "app.py", "--address", "127.0.0.1", "--port", str(port)],
    ),
    "bentoml": Server(
        package="bentoml",
        route="/classify",
        command=lambda python, _, port: [
            *(python, "-m", "bentoml", "serve", "app:Classify"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ],
    ),
    "kserve": Server(
        package="kserve",
        route="/v2/models/classify/infer",
        is_oip=True,
        command=lambda python, _, port: [python, "app.py", "--http_port", str(port), "--enable_grpc", "false"],
    ),
    "triton": Server(package="nvidia-pytriton", route="/v2/models/classify/infer", command=_triton, is_oip=True),
}
"""By page."""

ENVIRONMENT = {
    "BENTOML_DO_NOT_TRACK": "True",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)),
}
