"""A recurrent net that reads a noisy digit through a keyhole, a part of it each turn, until it thinks that it knows the digit.

The halting is learned, as in Graves, Adaptive Computation Time for Recurrent Neural Networks, 2016 (arXiv 1603.08983). What the
halting head learns is whether the present answer is right, as the classifiers for early exits do in Schuster et al., Confident
Adaptive Language Modeling, NeurIPS 2022.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from torch import Tensor, nn

WEIGHTS = Path(__file__).parent / "weights" / "refiner.safetensors"
MAX_TURNS = 16
WIDTH = 1024
"""Of the state."""
NUM_CLASSES = 10
NUM_TRAINED = 1_200
"""Of scikit-learn's 1,797 digits; the others are held out. Different people wrote them."""
MAX_NOISE = 0.25
"""Standard deviation of the noise on the worst pictures, whose ink is 1."""

_SIDE = 8
_KEYHOLE = 3
_CORNERS = (0, 2, 3, 5)
_EMBEDDED = 256


class Refiner(nn.Module):
    """One turn: looks at the part of the picture that is due, and updates its belief."""

    keyholes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keyholes", keyholes(), persistent=False)
        self.embed = nn.Linear(_SIDE * _SIDE + MAX_TURNS, _EMBEDDED)
        self.cell = nn.GRUCell(_EMBEDDED, WIDTH)
        with torch.no_grad():
            self.cell.bias_ih[WIDTH : 2 * WIDTH] += 1.0  # what was seen is remembered, to begin with
        self.score = nn.Linear(WIDTH, NUM_CLASSES)
        self.halt = nn.Sequential(nn.Linear(WIDTH + NUM_CLASSES, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, image: Tensor, state: Tensor, turn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Shapes: (batch, 1, 8, 8), (batch, WIDTH), (batch, 1) int64 -> state, logits (batch, 10), halting logit (batch, 1)."""
        at = turn[:, 0]
        seen = image.flatten(1) * self.keyholes[at]
        due = nn.functional.one_hot(at, MAX_TURNS).to(seen.dtype)
        state = self.cell(torch.relu(self.embed(torch.cat([seen, due], dim=1))), state)
        scores = self.score(state)
        # The reader is not bent to please the halting head.
        known = torch.cat([state, scores.softmax(dim=1)], dim=1).detach()
        return state, scores, self.halt(known)


def keyholes() -> Tensor:
    """What is seen in each turn: 1 or 0 for each pixel. Shape (MAX_TURNS, 64)."""
    masks = torch.zeros(MAX_TURNS, _SIDE, _SIDE)
    order = torch.randperm(MAX_TURNS, generator=torch.Generator().manual_seed(0)).tolist()
    for turn, place in enumerate(order):
        top, left = _CORNERS[place // len(_CORNERS)], _CORNERS[place % len(_CORNERS)]
        masks[turn, top : top + _KEYHOLE, left : left + _KEYHOLE] = 1
    return masks.flatten(1)


def digits(*, is_held_out: bool) -> tuple[Tensor, Tensor]:
    """Pictures of shape (n, 1, 8, 8) in 0..1, and their labels."""
    data: Any = load_digits()
    part = slice(NUM_TRAINED, None) if is_held_out else slice(NUM_TRAINED)
    return torch.from_numpy(data.images[part]).float().unsqueeze(1) / 16.0, torch.from_numpy(data.target[part])


def add_noise(images: Tensor, generator: torch.Generator) -> Tensor:
    """The pictures under noise, some hardly, some badly."""
    levels = torch.rand(len(images), 1, 1, 1, generator=generator) * MAX_NOISE
    return images + levels * torch.randn(images.shape, generator=generator)


def all_turns(net: Refiner, images: Tensor, num_turns: int = MAX_TURNS) -> tuple[Tensor, Tensor]:
    """The turns of pictures, halted or not: logits (turns, n, 10) and halting logits (turns, n)."""
    state = images.new_zeros(len(images), WIDTH)
    scores: list[Tensor] = []
    halts: list[Tensor] = []
    for turn in range(num_turns):
        state, score, halt = net(images, state, torch.full((len(images), 1), turn))
        scores.append(score)
        halts.append(halt[:, 0])
    return torch.stack(scores), torch.stack(halts)


def load_refiner() -> Refiner:
    """The net with the weights that `train.py` made.

    Raises:
        FileNotFoundError: If it was not run.
    """
    if not WEIGHTS.is_file():
        raise FileNotFoundError(f"{WEIGHTS.name} is missing; make it with: python -m benchmarks.workloads.loop.train")
    net = Refiner()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()
