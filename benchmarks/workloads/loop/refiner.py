"""A recurrent net that reads a noisy digit through a keyhole, a part in each turn, until it is sure of the digit.

It learns when to halt, as in Graves, Adaptive Computation Time for Recurrent Neural Networks, 2016 (arXiv 1603.08983). Its
halting head learns whether the current answer is right, like the early-exit classifiers in Schuster et al., Confident Adaptive
Language Modeling, NeurIPS 2022.
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
"""The size of the state."""
NUM_CLASSES = 10
NUM_TRAINED = 1_200
"""How many of scikit-learn's 1,797 digits are used for training. The others are held out; different people wrote them."""
MAX_NOISE = 0.25
"""The standard deviation of the noise on the worst pictures, where ink is 1."""

_SIDE = 8
_KEYHOLE = 3
_CORNERS = (0, 2, 3, 5)
_EMBEDDED = 256


class Refiner(nn.Module):
    """Runs one turn: looks at the turn's part of the picture and updates the state."""

    keyholes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keyholes", keyholes(), persistent=False)
        self.embed = nn.Linear(_SIDE * _SIDE + MAX_TURNS, _EMBEDDED)
        self.cell = nn.GRUCell(_EMBEDDED, WIDTH)
        with torch.no_grad():
            self.cell.bias_ih[WIDTH : 2 * WIDTH] += 1.0  # at first, everything that was seen is remembered
        self.score = nn.Linear(WIDTH, NUM_CLASSES)
        self.halt = nn.Sequential(nn.Linear(WIDTH + NUM_CLASSES, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, image: Tensor, state: Tensor, turn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Shapes: (batch, 1, 8, 8), (batch, WIDTH), (batch, 1) int64 -> state, logits (batch, 10), halting logit (batch, 1)."""
        at = turn[:, 0]
        seen = image.flatten(1) * self.keyholes[at]
        due = nn.functional.one_hot(at, MAX_TURNS).to(seen.dtype)
        state = self.cell(torch.relu(self.embed(torch.cat([seen, due], dim=1))), state)
        scores = self.score(state)
        # The halting head's training must not change the reader.
        known = torch.cat([state, scores.softmax(dim=1)], dim=1).detach()
        return state, scores, self.halt(known)


def keyholes() -> Tensor:
    """Which pixels are seen in each turn: 1 or 0 per pixel. Shape (MAX_TURNS, 64)."""
    masks = torch.zeros(MAX_TURNS, _SIDE, _SIDE)
    order = torch.randperm(MAX_TURNS, generator=torch.Generator().manual_seed(0)).tolist()
    for turn, place in enumerate(order):
        top, left = _CORNERS[place // len(_CORNERS)], _CORNERS[place % len(_CORNERS)]
        masks[turn, top : top + _KEYHOLE, left : left + _KEYHOLE] = 1
    return masks.flatten(1)


def digits(*, is_held_out: bool) -> tuple[Tensor, Tensor]:
    """Returns pictures of shape (n, 1, 8, 8) in 0..1, and their labels."""
    data: Any = load_digits()
    part = slice(NUM_TRAINED, None) if is_held_out else slice(NUM_TRAINED)
    return torch.from_numpy(data.images[part]).float().unsqueeze(1) / 16.0, torch.from_numpy(data.target[part])


def add_noise(images: Tensor, generator: torch.Generator) -> Tensor:
    """Returns the pictures with noise, some with a little, some with a lot."""
    levels = torch.rand(len(images), 1, 1, 1, generator=generator) * MAX_NOISE
    return images + levels * torch.randn(images.shape, generator=generator)


def all_turns(net: Refiner, images: Tensor, num_turns: int = MAX_TURNS) -> tuple[Tensor, Tensor]:
    """Returns all turns of pictures, whether halted or not: logits (turns, n, 10) and halting logits (turns, n)."""
    state = images.new_zeros(len(images), WIDTH)
    scores: list[Tensor] = []
    halts: list[Tensor] = []
    for turn in range(num_turns):
        state, score, halt = net(images, state, torch.full((len(images), 1), turn))
        scores.append(score)
        halts.append(halt[:, 0])
    return torch.stack(scores), torch.stack(halts)


def load_refiner() -> Refiner:
    """Returns the net with the weights that `train.py` wrote.

    Raises:
        FileNotFoundError: If there are no weights yet.
    """
    if not WEIGHTS.is_file():
        raise FileNotFoundError(f"{WEIGHTS.name} is missing; make it with: python -m benchmarks.workloads.loop.train")
    net = Refiner()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()
