"""Who speaks when, from probabilities of speech and from voices: pure functions and small state, no nets."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from speech_models import FRAME, MEL_STEP, SAMPLES_PER_S

SPEECH, NO_SPEECH = 0.5, 0.35
"""From the first probability on somebody speaks; below the second, nobody. silero-vad's own defaults, as the next two."""
MIN_SILENCE = SAMPLES_PER_S // 10
MIN_SPEECH = SAMPLES_PER_S // 4
WINDOW, WINDOW_STEP = 160, 40
"""Spectra: a voice is heard in 1.6 s, every 0.4 s."""
MIN_ALIKE = 0.78
"""From this similarity, two voices are of one person."""
MIN_STEADY = 0.8
"""A new person is believed where two neighbouring windows are at least so similar; otherwise two people are mixed there."""


@dataclass(frozen=True)
class Segment:
    """Samples in which somebody speaks."""

    start: int
    end: int


class SegmentFinder:
    """Finds segments of speech while probabilities arrive, as silero-vad's `get_speech_timestamps` does without padding."""

    def __init__(self) -> None:
        self._position = 0
        self._start: int | None = None
        self._silence: int | None = None

    def add(self, probabilities: Float[np.ndarray, " frames"]) -> Iterator[Segment]:
        """Takes the next frames; yields the segments that end in them."""
        for probability in probabilities.tolist():
            position, self._position = self._position, self._position + FRAME
            if probability >= SPEECH:
                self._silence = None
                self._start = position if self._start is None else self._start
            elif probability < NO_SPEECH and self._start is not None:
                self._silence = position if self._silence is None else self._silence
                if position - self._silence >= MIN_SILENCE:
                    yield from self._finish(self._silence)

    def finish(self, num_samples: int) -> Iterator[Segment]:
        """Yields the segment that the end of the audio cuts off, if there is one."""
        if self._start is not None:
            yield from self._finish(num_samples)

    def _finish(self, end: int) -> Iterator[Segment]:
        start, self._start, self._silence = self._start, None, None
        if start is not None and end - start > MIN_SPEECH:
            yield Segment(start, end)


def window_starts(num_samples: int) -> range:
    """Returns the first spectrum of each window of a segment; at least one."""
    num_spectra = 1 + num_samples // MEL_STEP
    return range(0, max(num_spectra - WINDOW, 0) + 1, WINDOW_STEP)


@dataclass(frozen=True)
class Turn:
    """A person, by number, speaks from one sample to another. Number -1 is a voice that was too short to know."""

    start: int
    end: int
    person: int


@dataclass
class People:
    """The people heard so far, by the sums of their voices."""

    _sums: list[Float[np.ndarray, "256"]] = field(default_factory=list)

    def turns(self, segment: Segment, voices: Float[np.ndarray, "windows 256"]) -> Iterator[Turn]:
        """Yields who speaks in a segment, from the voice of each of its windows, or from the only voice in it."""
        is_long = segment.end - segment.start > WINDOW * MEL_STEP
        if len(voices) == 1:
            steady = [is_long]
        else:
            steady = [*(np.sum(voices[:-1] * voices[1:], axis=1) >= MIN_STEADY).tolist(), False]
        people = [self._recognise(*each) for each in zip(voices, steady, strict=True)]
        start = segment.start
        for at, person in enumerate(people):
            is_last = at == len(people) - 1
            if is_last or people[at + 1] != person:
                middle = segment.start + (at * WINDOW_STEP + (WINDOW + WINDOW_STEP) // 2) * MEL_STEP
                end = segment.end if is_last else min(middle, segment.end)
                yield Turn(start, end, person)
                start = end

    def _recognise(self, voice: Float[np.ndarray, "256"], is_steady: bool) -> int:
        """Returns the person with the most similar voice; a steady voice that resembles nobody's is a new person's."""
        similarities = [float(each @ voice / np.linalg.norm(each)) for each in self._sums]
        person = int(np.argmax(similarities)) if similarities else -1
        if is_steady and (not similarities or similarities[person] < MIN_ALIKE):
            person = len(self._sums)
            self._sums.append(voice.copy())
        elif is_steady:
            self._sums[person] = self._sums[person] + voice
        return person
