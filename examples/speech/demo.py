"""Starts a server, sends it a telephone call, shows each turn as it arrives, compares it with what people wrote down, and stops.

    python examples/speech/demo.py [--in-process]
    python examples/speech/demo.py --audio call.wav     # of one channel, 16 bits, 16,000 samples a second

Its other options are those of `dyorc serve`.
"""

import argparse
import itertools
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from speech_sample import Utterance, read_audio, sample_audio, sample_utterances

import dyorc
from dyorc.testing import serving

TIMEOUT_S = 120


@dataclass(frozen=True)
class Turn:
    """One part of the answer. `latency_s` is measured at the client, from the start of the request."""

    start_s: float
    end_s: float
    person: int
    latency_s: float


def listen(client: dyorc.Client, audio: np.ndarray) -> list[Turn]:
    """Sends audio, shape [samples] of FP32."""
    started_s = time.perf_counter()
    turns: list[Turn] = []
    for part in client.stream("who_speaks", audio=audio):
        latency_s = time.perf_counter() - started_s
        turns.append(Turn(float(part["start_s"]), float(part["end_s"]), int(part["person"]), latency_s))
    return turns


def main() -> None:
    """Runs the demonstration."""
    parser = argparse.ArgumentParser(description="Says who speaks when.")
    parser.add_argument("--audio", type=Path, help="a WAV file; without it, the sample of pyannote.audio")
    options, of_server = parser.parse_known_args()
    audio = read_audio(options.audio) if options.audio else sample_audio()
    app = Path(__file__).with_name("app.py")
    with (
        serving(f"{app}:who_speaks", *of_server, show=lambda line: print(f"  server | {line}", flush=True)) as server,
        dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client,
    ):
        listen(client, audio)  # warm-up
        started_s = time.perf_counter()
        turns = listen(client, audio)
        elapsed_s = time.perf_counter() - started_s
    print()
    for turn in turns:
        who = "somebody" if turn.person < 0 else f"person {turn.person + 1}"
        print(f"{turn.start_s:6.2f} - {turn.end_s:5.2f} s  {who:<9}  known after {1000 * turn.latency_s:,.0f} ms")
    num_people = len({turn.person for turn in turns} - {-1})
    print(f"\n{len(audio) / 16_000:.0f} s of audio in {elapsed_s:.2f} s: {len(turns)} turns of {num_people} people")
    if not options.audio:
        ratio = agreement(turns, sample_utterances())
        print(f"right {ratio:.1%} of the time in which one person speaks alone, as people wrote it down")


def agreement(turns: list[Turn], utterances: list[Utterance]) -> float:
    """Returns how much of the time in which one person speaks alone is given to that person, 0..1, looking every 10 ms.

    Numbers mean nothing by themselves: those of the turns are given to people so that the agreement is highest.
    """
    pairs: list[tuple[int | None, str]] = []
    for at_s in np.arange(0, max(each.end_s for each in utterances), 0.01):
        speaking = [each.person for each in utterances if each.start_s <= at_s < each.end_s]
        if len(speaking) == 1:
            pairs.append((next((each.person for each in turns if each.start_s <= at_s < each.end_s), None), speaking[0]))
    numbers, people = sorted({turn.person for turn in turns} - {-1}), sorted({each.person for each in utterances})
    names = [dict(zip(numbers, each, strict=True)) for each in itertools.product(people, repeat=len(numbers))]
    return max(sum(name.get(number) == person for number, person in pairs) / len(pairs) for name in names)


if __name__ == "__main__":
    main()
