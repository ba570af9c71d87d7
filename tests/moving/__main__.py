"""Serves the pipeline of docs/compare with each server whose environment is there, and compares 40 answers with plain NumPy.

    python -m tests.moving [PAGE ...]

The last line is JSON: the version of each server that answered rightly. Ends with 1 if one did not.
"""

import contextlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.processes import adopt_orphans, end_children
from tests.moving.pages import write_pipeline
from tests.moving.servers import ENVIRONMENT, SERVERS, Server, python_of

_NUM_REQUESTS = 40
_START_TIMEOUT_S = 180.0
_REQUEST_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 20.0
_RETRY_S = 0.1
_MAX_LOG_LENGTH = 2000


def main(pages: list[str]) -> int:
    """Runs the pages' servers one after the other. Returns the exit status."""
    adopt_orphans()
    versions: dict[str, str] = {}
    status = 0
    for page in pages or list(SERVERS):
        if not Path(python_of(page)).exists():
            print(f"{page}: skipped, {python_of(page)} is missing (make test-moving makes it)")
            continue
        try:
            versions[page] = _try(page)
            print(f"{page}: {SERVERS[page].package} {versions[page]} answers {_NUM_REQUESTS} requests as NumPy does", flush=True)
        except Exception as error:  # whatever a foreign server does, the next one is tried
            print(f"{page}: {type(error).__name__}: {error}", flush=True)
            status = 1
    print(json.dumps(versions))
    return status


def _try(page: str) -> str:
    server = SERVERS[page]
    with tempfile.TemporaryDirectory(prefix="moving-") as name:
        folder = Path(name)
        write_pipeline(page, folder)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        command = server.command(python_of(page), folder, port)
        environment = os.environ | ENVIRONMENT | {"TMPDIR": name, "BENTOML_HOME": f"{name}/bentoml"}
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
            try:
                _compare(server, f"http://127.0.0.1:{port}{server.route}", folder, process)
            except Exception:
                print((folder / "log").read_text()[-_MAX_LOG_LENGTH:])
                raise
            finally:
                with contextlib.suppress(ProcessLookupError):  # it ended by itself
                    os.killpg(process.pid, signal.SIGINT)
                end_children(_END_TIMEOUT_S)
    code = f"import importlib.metadata as m; print(m.version({server.package!r}))"
    return subprocess.run([python_of(page), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _compare(server: Server, url: str, folder: Path, process: "subprocess.Popen[bytes]") -> None:
    models = runpy.run_path(str(folder / "models.py"))
    images = np.random.default_rng(1).standard_normal((_NUM_REQUESTS, 64), dtype=np.float32)
    guesses = models["small"](images)
    expected = np.where(guesses.max(1, keepdims=True) > 0.9, guesses, models["large"](images))
    with httpx.Client(timeout=_REQUEST_TIMEOUT_S) as client:
        _wait(client, url, _body(server, images[0]), process)
        for image, right in zip(images, expected, strict=True):
            response = client.post(url, json=_body(server, image))
            response.raise_for_status()
            np.testing.assert_allclose(_scores(response.json()), right, atol=1e-5)


def _wait(client: httpx.Client, url: str, body: Any, process: "subprocess.Popen[bytes]") -> None:
    end_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            if client.post(url, json=body).is_success:
                return
        except httpx.TransportError:
            pass
        if process.poll() is not None or time.monotonic() > end_s:
            raise RuntimeError(f"{url} does not answer (exit status {process.poll()})")
        time.sleep(_RETRY_S)


def _body(server: Server, image: "np.ndarray[Any, Any]") -> Any:
    if server.is_oip:
        return {"inputs": [{"name": "image", "shape": [64], "datatype": "FP32", "data": image.tolist()}]}
    return {"image": image.tolist()}


def _scores(answer: Any) -> Any:
    match answer:
        case {"outputs": [{"data": data}]} | {"scores": data}:
            return data
        case _:
            return answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
