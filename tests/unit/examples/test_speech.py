"""`examples/speech`: the segments are those of silero-vad's own code, the turns are what people wrote down."""

import importlib.util
import wave
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dyorc
from tests.unit.examples.modules import load_example, load_module

if any(importlib.util.find_spec(name) is None for name in ("onnxruntime", "silero_vad", "resemblyzer", "pyannote")):
    pytest.skip("needs the libraries of examples/speech", allow_module_level=True)

from silero_vad.utils_vad import OnnxWrapper, get_speech_timestamps, get_speech_timestamps_from_probs  # pyright: ignore

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Returns what loads a module of the example. A replica sets torch's threads, which here would outlast the test."""
    monkeypatch.setattr(torch, "set_num_threads", lambda num: None)
    return lambda name: load_example("speech", monkeypatch) if name == "app" else load_module("speech", name, monkeypatch)


@pytest.fixture
def audio(load: Load) -> np.ndarray:
    """Returns the telephone call."""
    return load("speech_sample").sample_audio()


def plain_detector(load: Load) -> Any:
    """Returns silero-vad's own model."""
    return OnnxWrapper(str(load("speech_models")._file("silero_vad", "data/silero_vad.onnx")), True)


def test_probabilities_of_pieces_are_those_of_the_whole(load: Load, audio: np.ndarray) -> None:
    app = load("app")
    pieces = audio[: 8 * app.PIECE].reshape(-1, app.PIECE)
    state, probabilities = np.zeros(320, np.float32), []
    for piece in pieces:
        heard = dyorc.run(app.hear, piece, state)
        state = heard["state"]
        probabilities.append(heard["probability"])
    whole = plain_detector(load).audio_forward(torch.from_numpy(pieces.reshape(-1)), 16_000)[0].numpy()
    assert whole.max() > 0.9
    assert whole.min() < 0.1
    np.testing.assert_allclose(np.concatenate(probabilities), whole, atol=1e-6)


def test_segments_are_those_of_silero_vad(load: Load, audio: np.ndarray) -> None:
    model = plain_detector(load)
    expected = get_speech_timestamps(torch.from_numpy(audio), model, speech_pad_ms=0)
    finder = load("speech_turns").SegmentFinder()
    probabilities = model.audio_forward(torch.from_numpy(audio), 16_000)[0].numpy()
    segments = [*finder.add(probabilities), *finder.finish(len(audio))]
    assert len(segments) > 3
    assert [{"start": each.start, "end": each.end} for each in segments] == expected


@given(seed=st.integers(0, 2**32 - 1), num_levels=st.integers(0, 12), sizes=st.integers(1, 40))
def test_segments_of_any_probabilities_are_those_of_silero_vad(seed: int, num_levels: int, sizes: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        turns = load_module("speech", "speech_turns", monkeypatch)
    generator = np.random.default_rng(seed)
    probabilities = np.repeat(generator.choice([0.1, 0.35, 0.4, 0.5, 0.6], num_levels), generator.integers(1, 12, num_levels))
    expected = get_speech_timestamps_from_probs(probabilities.tolist(), speech_pad_ms=0)
    finder = turns.SegmentFinder()
    segments = [
        each for start in range(0, len(probabilities), sizes) for each in finder.add(probabilities[start : start + sizes])
    ]
    segments += finder.finish(512 * len(probabilities))
    assert [{"start": each.start, "end": each.end} for each in segments] == expected


def test_turns_are_those_that_people_wrote_down(load: Load, audio: np.ndarray) -> None:
    app, demo = load("app"), load("demo")
    turns = [
        demo.Turn(float(part["start_s"]), float(part["end_s"]), int(part["person"]), 0.0)
        for part in dyorc.run(app.who_speaks, audio)
    ]
    assert demo.agreement(turns, load("speech_sample").sample_utterances()) > 0.85
    assert len({turn.person for turn in turns} - {-1}) <= 3
    assert all(0 <= turn.start_s < turn.end_s <= 30 for turn in turns)


def test_silence_has_no_turns(load: Load) -> None:
    assert list(dyorc.run(load("app").who_speaks, np.zeros(40_000, np.float32))) == []
    assert list(dyorc.run(load("app").who_speaks, np.zeros(0, np.float32))) == []


def test_a_segment_of_one_person_needs_one_glance_and_one_of_two_people_all_windows(load: Load, audio: np.ndarray) -> None:
    app = load("app")
    alone, both = audio[24 * 16_000 : 27 * 16_000], audio[11 * 16_000 : 17 * 16_000]
    assert dyorc.run(app.voices_in, alone).shape == (1, 256)
    voices = dyorc.run(app.voices_in, both)
    assert voices.shape == (12, 256)
    assert voices[0] @ voices[-1] < app.MIN_ALIKE < voices[0] @ voices[1]


def test_spectra_are_those_of_librosa(load: Load, audio: np.ndarray) -> None:
    librosa = pytest.importorskip("librosa", reason="not in the development environment: it brings numba")
    mels = librosa.feature.melspectrogram(y=audio[16_000:80_000], sr=16_000, n_fft=400, hop_length=160, n_mels=40).T
    np.testing.assert_allclose(load("speech_models").mel_spectrogram(audio[16_000:80_000]), mels, rtol=1e-3, atol=1e-5)


def test_a_file_of_another_rate_is_refused(load: Load, tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "music.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(44_100)
        file.writeframes(bytes(400))
    with pytest.raises(ValueError, match=r"music.wav has 2 channels, 16 bits, 44100 samples a second; expected 1 channel"):
        load("speech_sample").read_audio(tmp_path / "music.wav")
