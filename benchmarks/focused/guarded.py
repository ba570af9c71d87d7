"""What guessing ahead saves when a guard precedes a generator: `examples/guarded`, with speculation on and off.

    python -m benchmarks.focused.guarded [--systems on,off] [--rounds 3] [--duration-s 6]

Both run on real servers and take turns, so that changes on the machine affect them alike; 1, 4 and 32 closed-loop clients send
the demonstration's traffic. Every answer is compared with the nets' answer to that message alone. Figures are medians over the
rounds.

Progress goes to stderr. The last line of stdout is one JSON object: the figures with speculation "on" and "off", and ratios
of the two, on / off. Takes about four minutes. Needs the weights, which `make bench-guarded` provides.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from functools import partial

import numpy as np
import torch

from benchmarks.focused import turns
from benchmarks.focused.turns import Rounds, Turn
from benchmarks.serving import ROOT
from loadgen.pool import Pool
from loadgen.targets.base import TargetSpec

_EXAMPLE = ROOT / "examples" / "guarded"
_WORKFLOW = f"{_EXAMPLE / 'workflow.py'}:guarded"
_SWITCH = "DYORC_ENGINE__SPECULATION__ENABLED"
_NUM_CLIENTS = (1, 4, 32)
_NUM_MESSAGES = 512
_RATIOS = ("p50_ms_1", "p99_ms_1", "p50_ms_4", "rps_4", "p50_ms_32", "rps_32")

SYSTEMS = {mode: turns.dyorc(_WORKFLOW, **{_SWITCH: value}) for mode, value in {"on": "true", "off": "false"}.items()}


def draw_pool() -> Pool:
    """Returns messages with their expected answers."""
    sys.path.insert(0, str(_EXAMPLE))
    from guarded_nets import MIN_HARM, Generator, Guard, load_net  # pyright: ignore[reportMissingImports]
    from guarded_texts import HARMFUL_RATIO, REFUSAL, draw_messages, encode  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    guard, generator = load_net("guard", Guard()), load_net("generator", Generator())
    messages = draw_messages(_NUM_MESSAGES, HARMFUL_RATIO, seed=5, is_held_out=True)
    texts = [encode(message.text)[None] for message in messages]
    refusal = np.frombuffer(REFUSAL, np.uint8)
    with torch.inference_mode():
        answers = [generator.continue_text(text)[0].numpy() if guard(text)[0] < MIN_HARM else refusal for text in texts]
    return Pool(inputs=[{"text": text.numpy()} for text in torch.cat(texts)], answers=[{"output": answer} for answer in answers])


def measure(turn: Turn, pool: Pool) -> dict[str, float]:
    """Measures with few and with many clients, and counts what wrong guesses cost."""
    spec = TargetSpec(protocol="http", url=turn.address.url, model="guarded")
    figures: dict[str, float] = {}
    for num_clients in _NUM_CLIENTS:
        figures |= turn.closed_loop(spec, pool, num_clients)
    with urllib.request.urlopen(f"{turn.address.url}/status", timeout=10) as response:
        figures["wasted_ratio"] = float(json.load(response)["speculation"]["wasted_ratio"])
    return figures


def summarize(rounds: Rounds) -> dict[str, object]:
    """Returns medians over the rounds and their ratios: below 1 is better for a time, above 1 for a rate."""
    medians = {mode: turns.without_cpu(turns.medians(figures_of_rounds)) for mode, figures_of_rounds in rounds.items()}
    wasted = {mode: figures.pop("wasted_ratio") for mode, figures in medians.items()}
    summary: dict[str, object] = dict(medians)
    if medians.keys() >= {"on", "off"}:
        for name in _RATIOS:
            ratio = medians["on"][name] / medians["off"][name]
            summary[f"{name.replace('_ms', '').replace('_', '_ratio_')}"] = round(ratio, 3)
    return {**summary, "wasted_ratio": wasted.get("on")}


if __name__ == "__main__":
    turns.main(__doc__, SYSTEMS, partial(measure, pool=draw_pool()), summarize, duration_s=6.0)
