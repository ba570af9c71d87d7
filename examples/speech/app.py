"""Who speaks when: finds speech in audio piece by piece, listens to the voices in it, and sends each turn as soon as it is known.

dyorc serve examples/speech/app.py:who_speaks
"""

from collections.abc import AsyncIterator
from typing import TypedDict

import numpy as np
import torch
from jaxtyping import Float, Int
from speech_models import FRAME, SAMPLES_PER_S, SpeechDetector, load_voice_encoder, mel_spectrogram
from speech_turns import MIN_ALIKE, WINDOW, People, SegmentFinder, window_starts
from torch import Tensor

import dyorc

PIECE = 16_384
"""Samples that are heard in one call: 1.02 s. The last piece is filled up with zeros, whose frames do not count."""
LOUDNESS = 10 ** (-30 / 20)
"""Quieter segments are made as loud as this (root mean square), since the encoder learned from such."""


class Heard(TypedDict):
    """The probability of speech in each 32 ms of pieces, and what the detector remembers after them."""

    probability: Float[np.ndarray, "batch 32"]
    state: Float[np.ndarray, "batch 320"]


class Glance(TypedDict):
    """The mean of the voices in a segment, and how similar the least similar of them are."""

    voice: Float[Tensor, "256"]
    likeness: Float[Tensor, ""]


class Spoken(TypedDict):
    """A turn: its start and end in seconds, and who speaks, by number; -1 is a voice that was too short to know."""

    start_s: Float[np.ndarray, ""]
    end_s: Float[np.ndarray, ""]
    person: Int[np.ndarray, ""]


@dyorc.program(max_batch_size=16)
class Hear:
    """Hears in a piece of audio whether somebody speaks."""

    def __init__(self) -> None:
        self.detector = SpeechDetector(dyorc.num_threads())

    def __call__(self, piece: Float[np.ndarray, "batch 16384"], state: Float[np.ndarray, "batch 320"]) -> Heard:
        probability, state = self.detector(piece, state)
        return {"probability": probability, "state": state}


@dyorc.program(batched=False)
def spectra(segment: Float[np.ndarray, " samples"]) -> Float[np.ndarray, "spectra 40"]:
    """Makes the spectra that voices are known by, at least as many as a window has."""
    loudness = np.sqrt(np.mean(segment**2))
    mels = mel_spectrogram(segment * max(1, LOUDNESS / max(loudness, 1e-6)))
    return np.pad(mels, ((0, max(0, WINDOW - len(mels))), (0, 0)))


@dyorc.program(max_batch_size=16)
class Voice:
    """Describes the voice in 1.6 s."""

    def __init__(self) -> None:
        self.encoder = load_voice_encoder()

    def __call__(self, mels: Float[Tensor, "batch 160 40"]) -> Float[Tensor, "batch 256"]:
        return self.encoder(mels)


@dyorc.program(batched=False)
class Compare:
    """Listens to a whole segment, a quarter as closely as `voice` does."""

    def __init__(self) -> None:
        self.encoder = load_voice_encoder()

    def __call__(self, mels: Float[Tensor, "spectra 40"]) -> Glance:
        voices = self.encoder(torch.stack(mels[: len(mels) // WINDOW * WINDOW].split(WINDOW)))
        return {"voice": torch.nn.functional.normalize(voices.mean(dim=0), dim=0), "likeness": (voices @ voices.T).min()}


hear, voice, compare = Hear(), Voice(), Compare()


def is_one_person(likeness: float) -> bool:
    return likeness >= MIN_ALIKE


@dyorc.workflow
async def voices_in(segment: Float[np.ndarray, " samples"]) -> Float[np.ndarray, "windows 256"]:
    """Returns the voice in each window of a segment, or only one if the same person seems to speak all the time."""
    mels, starts = spectra(segment), window_starts(len(await segment))
    glance = compare(mels)
    if len(starts) == 1 or await dyorc.when(glance["likeness"], is_one_person):
        return (await glance["voice"])[np.newaxis]
    return np.array(await dyorc.gather(*dyorc.map(voice, [mels[start : start + WINDOW] for start in starts])))


@dyorc.workflow
async def who_speaks(audio: Float[np.ndarray, " samples"]) -> AsyncIterator[Spoken]:
    """Sends each turn in audio of one channel, 16,000 samples a second, -1..1."""
    samples = await audio
    pieces = np.pad(samples, (0, -len(samples) % PIECE)).reshape(-1, PIECE)
    state, probabilities = np.zeros(320, np.float32), []
    for piece in pieces:  # nothing waits: what is remembered goes from call to call
        heard = hear(piece, state)
        state = heard["state"]
        probabilities.append(heard["probability"])
    finder, people, num_frames = SegmentFinder(), People(), -(-len(samples) // FRAME)
    for start, probability in zip(range(0, num_frames, PIECE // FRAME), probabilities, strict=True):
        segments = list(finder.add((await probability)[: num_frames - start]))
        if start + PIECE // FRAME >= num_frames:
            segments += finder.finish(len(samples))
        for segment in segments:
            for turn in people.turns(segment, await voices_in(samples[segment.start : segment.end])):
                yield {"start_s": turn.start / SAMPLES_PER_S, "end_s": turn.end / SAMPLES_PER_S, "person": turn.person}
