"""Starts the cluster with the OCR example, then the digits', and kills its containers under load.

    python -m tests.compose                      # on a separate engine, with this environment's libraries
    make images && DOCKER_HOST=... python -m tests.compose

Prints how long the first answer takes, what OCR reads, and the table of docs/how-to/deploy.md; the last line is JSON. Variables
of docker-compose.yml count.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.compose import images
from tests.compose.cluster import GATEWAYS, ORCHESTRATORS, ROOT, Cluster, cluster
from tests.compose.engine import Engine, engine
from tests.compose.kills import HEAD, Kill, kill
from tests.compose.load import load

_URLS = [f"http://127.0.0.1:{os.environ.get(name, port)}" for name, port in (("DYORC_PORT", "8000"), ("DYORC_PORT_2", "8010"))]
_OCR = ROOT / "examples" / "ocr" / "demo.py"
_ROLES = ("leader", "standby", "gateway", "redis", "ray-head", "ray-worker")
_NUM_CLIENTS = 16


def main() -> None:
    """Runs it."""
    with _machine() as (found, mounts):
        with _started(found, "ocr", mounts):
            for _ in range(2):
                subprocess.run([*found.inside, sys.executable, _OCR, "--url", _URLS[0]], check=True)
        with _started(found, "digits", mounts) as digits:
            kills = _kill_all(digits)
    print(json.dumps({"name": "compose", "kills": [asdict(one) for one in kills]}))


@contextmanager
def _machine() -> Iterator[tuple[Engine, Path | None]]:
    """Finds the engine at DOCKER_HOST, or starts one. Yields it, with what Compose needs for images without libraries."""
    if "DOCKER_HOST" in os.environ:
        given = Engine(dict(os.environ), "")
        running = given.docker("ps", "--quiet").split()
        assert not running, f"{len(running)} containers run on this engine; this wants one of its own"
        yield given, None
        return
    with tempfile.TemporaryDirectory(prefix="t-") as folder, engine() as started:
        mounts = images.build(started, Path(folder))
        yield started, mounts


@contextmanager
def _started(found: Engine, example: str, mounts: Path | None) -> Iterator[Cluster]:
    """Runs a cluster with one of the examples."""
    started_s = time.monotonic()
    variables = {"DYORC_TOML": str(ROOT / f"examples/{example}/compose.toml")}
    if mounts is not None:
        variables["REDIS_IMAGE"] = images.REDIS
    with cluster(found, override=mounts, **variables) as running:
        running.wait_until_healthy(*GATEWAYS)
        print(f"{example}: ready {time.monotonic() - started_s:.1f} s after `docker compose up`", flush=True)
        yield running


def _kill_all(found: Cluster) -> list[Kill]:
    kills: list[Kill] = []
    body, is_right = _digit()
    print(HEAD, flush=True)
    with load(_URLS, "classify", body, is_right, _NUM_CLIENTS, found.engine) as sent:
        for role in _ROLES:
            done = kill(found, sent, _service(found, role), role)
            kills.append(done)
            print(done.row, *sorted(set(done.errors))[:3], flush=True)
    return kills


def _service(found: Cluster, role: str) -> str:
    """Returns which service has a role now: either orchestrator may lead."""
    if role not in ("leader", "standby"):
        return role
    leader = found.leader()
    return leader if role == "leader" else next(one for one in ORCHESTRATORS if one != leader)


def _digit() -> tuple[Any, Callable[[Any], bool]]:
    """Returns a request for the hardest held-out digit, and whether an answer is that of the nets."""
    sys.path.insert(0, str(ROOT / "examples" / "digits"))
    from digits_nets import digits, large_net, load_net, small_net

    images, _ = digits(is_held_out=True)
    hardest = int(load_net("small", small_net())(images).softmax(1).max(1).values.argmin())
    image = images[hardest]
    expected = load_net("large", large_net())(image[None]).softmax(1)[0].detach().numpy()

    def is_right(answer: Any) -> bool:
        outputs = {output["name"]: output["data"] for output in answer["outputs"]}
        return outputs["took_large"] == [True] and np.allclose(outputs["probabilities"], expected, atol=1e-4)

    shape = list(image.shape)
    return {"inputs": [{"name": "image", "shape": shape, "datatype": "FP32", "data": image.flatten().tolist()}]}, is_right


if __name__ == "__main__":
    main()
