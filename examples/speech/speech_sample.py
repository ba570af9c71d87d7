"""A conversation to try the example on: 30 s of two people on the telephone, and who speaks when, as people wrote it down.

Both travel in the PyPI package `pyannote.audio` (MIT); only these files are used.
"""

import importlib.util
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Utterance:
    """A person speaks, from one second to another."""

    start_s: float
    end_s: float
    person: str


def sample_audio() -> Float[np.ndarray, " samples"]:
    """Returns the audio, 16,000 samples a second, -1..1."""
    return read_audio(_folder() / "sample.wav")


def read_audio(path: Path) -> Float[np.ndarray, " samples"]:
    """Returns a WAV file's samples, -1..1.

    Raises:
        ValueError: If it does not hold one channel of 16,000 numbers of 16 bits a second.
    """
    with wave.open(str(path)) as file:
        channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
        if (channels, width, rate) != (1, 2, 16_000):
            form = f"{channels} channels, {8 * width} bits, {rate} samples a second"
            raise ValueError(f"{path.name} has {form}; expected 1 channel, 16 bits, 16000 samples a second")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 2**15


def sample_utterances() -> list[Utterance]:
    """Returns what people wrote down: in the RTTM format, a line for each utterance."""
    rows = [line.split() for line in (_folder() / "sample.rttm").read_text().splitlines()]
    return [Utterance(float(row[3]), float(row[3]) + float(row[4]), row[7]) for row in rows]


def _folder() -> Path:
    """Returns the folder of the files.

    Raises:
        FileNotFoundError: If the package is not installed; says how to install it.
    """
    # The package itself is not imported, not even to find it: that would need its libraries.
    spec = importlib.util.find_spec("pyannote")
    folders = [Path(folder) / "audio" / "sample" for folder in (spec.submodule_search_locations or [] if spec else [])]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None:
        raise FileNotFoundError("the sample is missing; install it with: pip install --no-deps pyannote.audio")
    return folder
