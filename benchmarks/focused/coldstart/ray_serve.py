# pyright: basic
# Ray ships no complete types.
"""Ray Serve's side: an application of the same program that is scaled to zero gets a request.

    python -m benchmarks.focused.coldstart.ray_serve FOLDER NAME=AUTOSCALING_CONFIG...

Prints a JSON object: for each name, the seconds until the answer. Each application is new, so that nothing is left of the last.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any

import numpy as np
import ray
from ray import serve

_TIMEOUT_S = 300.0
_OBJECT_STORE_BYTES = 100_000_000


class Plain:
    """The program, written for Serve as its users do."""

    def __init__(self) -> None:
        from safetensors.torch import load_file

        from benchmarks.focused.coldstart import program

        self._net = program.make_net()
        self._net.load_state_dict(load_file(os.environ[program.WEIGHTS]))
        self._net.eval()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        import torch

        with torch.inference_mode():
            return self._net(torch.from_numpy(x.copy())).numpy()


def main() -> None:
    """Measures and prints."""
    folder, *configs = sys.argv[1:]
    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)
    ray.init(
        address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
        object_store_memory=_OBJECT_STORE_BYTES, _temp_dir=f"{folder}/ray",
    )  # fmt: skip
    try:
        serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})
        print(json.dumps({name: _answered_s(name, json.loads(config)) for name, _, config in map(_split, configs)}))
    finally:
        ray.shutdown()


def _split(text: str) -> tuple[str, str, str]:
    return text.partition("=")


def _answered_s(name: str, config: dict[str, Any]) -> float:
    options = {"min_replicas": 0, "max_replicas": 1, **config}
    application = serve.deployment(Plain).options(name=name, autoscaling_config=options).bind()
    handle = serve.run(application, name=name, route_prefix=None)
    started_s = time.perf_counter()
    handle.remote(np.zeros((1, 2048), np.float32)).result(timeout_s=_TIMEOUT_S)
    return time.perf_counter() - started_s


if __name__ == "__main__":
    main()
