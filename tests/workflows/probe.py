"""A program whose module writes down what it finds when it is imported: what a replica's process is like."""

import json
import os
import random
import sys
from pathlib import Path

import numpy as np
from jaxtyping import Float

import dyorc


def _facts() -> dict[str, object]:
    torch = sys.modules["torch"]
    return {
        "pid": os.getpid(),
        "session": os.getsid(0),
        "name": Path("/proc/self/comm").read_text().strip(),
        "folder": os.getcwd(),
        "num_threads": [dyorc.num_threads(), torch.get_num_threads()],
        "draws": [random.random(), float(np.random.random()), float(torch.rand(()))],
        "has_cuda": torch.cuda.is_initialized(),
        "colour": os.environ.get("COLOUR"),
        "sums": [float((ones @ ones).sum()) for ones in (torch.ones(300, 300), np.ones((300, 300)))],
    }


if "FACTS_FOLDER" in os.environ:
    _target = Path(os.environ["FACTS_FOLDER"], f"{os.getpid()}.json")
    _target.with_suffix(".new").write_text(json.dumps(_facts()))
    _target.with_suffix(".new").rename(_target)
if os.environ.get("COLOUR") == "none":
    raise ValueError("it has no colour")


@dyorc.program
def probe(x: Float[np.ndarray, "batch 1"]) -> Float[np.ndarray, "batch 1"]:
    return x
