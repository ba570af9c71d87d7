"""Starts the cluster with the OCR example, then the digits', on the engine at DOCKER_HOST, and kills its containers under load.

    make images && python -m tests.compose

Prints how long the first answer takes, what OCR reads, and the table of docs/deploy.md. Variables of docker-compose.yml count.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.compose.cluster import GATEWAYS, ORCHESTRATORS, ROOT, Cluster, cluster
from tests.compose.engine import Engine
from tests.compose.kills import HEAD, kill
from tests.compose.load import load

_URLS = [f"http://127.0.0.1:{os.environ.get(name, port)}" for name, port in (("DYORC_PORT", "8000"), ("DYORC_PORT_2", "8010"))]
_OCR = ROOT / "examples" / "ocr" / "demo.py"
_ROLES = ("leader", "standby", "gateway", "redis", "ray-head", "ray-worker")
_NUM_CLIENTS = 16


def main() -> None:
    """Runs it."""
    engine = Engine(dict(os.environ), "")
    with _clean(engine):
        with _started(engine, "ocr"):
            for _ in range(2):
                subprocess.run([sys.executable, _OCR, "--url", _URLS[0]], check=True)
        with _started(engine, "digits") as found:
            _kill_all(found)


@contextmanager
def _started(engine: Engine, example: str) -> Iterator[Cluster]:
    """Runs a cluster with one of the examples."""
    started_s = time.monotonic()
    with cluster(engine, DYORC_TOML=str(ROOT / f"deploy/compose/{example}.toml")) as found:
        found.wait_until_healthy(*GATEWAYS)
        print(f"{example}: ready {time.monotonic() - started_s:.1f} s after `docker compose up`", flush=True)
        yield found


@contextmanager
def _clean(engine: Engine) -> Iterator[None]:
    """Keeps the engine's other containers out of it: none may run."""
    running = engine.docker("ps", "--quiet").split()
    assert not running, f"{len(running)} containers run on this engine; this wants one of its own"
    yield


def _kill_all(found: Cluster) -> None:
    body, is_right = _digit()
    print(HEAD, flush=True)
    with load(_URLS, "classify", body, is_right, _NUM_CLIENTS, "") as sent:
        for role in _ROLES:
            done = kill(found, sent, _service(found, role), role)
            print(done.row, *sorted(set(done.errors))[:3], flush=True)


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
