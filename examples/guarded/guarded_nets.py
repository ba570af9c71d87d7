"""The guard and the generator, built so that an answer has the same bits in every batch.

Floating-point sums depend on their order, and libraries choose the order by the size of the batch. Here that cannot matter: all
weights and all activations are small multiples of a power of two, so every sum is exact, in any order (`GRID_BITS`, `STEP_BITS`).
"""

from pathlib import Path
from typing import TypeVar

import torch
from guarded_texts import NUM_CHARS, NUM_CONTINUED
from safetensors.torch import load_file
from torch import Tensor, nn

Net = TypeVar("Net", bound=nn.Module)

WEIGHTS = Path(__file__).parent / "weights"
GRID_BITS = 8
"""Weights are multiples of 2 to the power of -8, and smaller than 1/2: 7 bits and a sign."""
STEP_BITS = 6
"""Activations are multiples of 2 to the power of -6, from -1 to 1: 6 bits and a sign. So a sum of 2,048 products needs 24 bits,
the precision of float32."""
MIN_HARM = 1.0
"""From this score, a message counts as harmful: a probability of 0.73."""
NUM_CODES = 128
"""ASCII."""


def snap(x: Tensor, bits: int = STEP_BITS) -> Tensor:
    """Returns the nearest multiple of 2 to the power of -bits. It has the gradient of `x`, so that nets can be trained through
    it."""
    snapped = x.mul(2**bits).round_().mul_(2**-bits)
    return x + (snapped - x).detach() if torch.is_grad_enabled() else snapped


def _codes(text: Tensor) -> Tensor:
    """Returns bytes as indices. Everything that is not ASCII becomes one code, so that no message is an error."""
    return text.long().clamp(max=NUM_CODES - 1)


class Guard(nn.Module):
    """Reads a message character by character with a small gated recurrent net.

    Returns a score for each message of a batch: the logarithm of the odds that it is harmful, the highest over its characters.
    """

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.read = nn.Embedding(NUM_CODES, 2 * width)
        self.recall = nn.Linear(width, 2 * width, bias=False)
        self.score = nn.Linear(width, 1)
        nn.init.normal_(self.read.weight, std=0.2)

    def forward(self, text: Tensor) -> Tensor:
        return self.scores(text).amax(dim=1)

    def scores(self, text: Tensor) -> Tensor:
        """Returns a score for each character, from everything read up to it."""
        read = self.read(_codes(text))
        state = read.new_zeros(len(text), self.recall.in_features)
        states: list[Tensor] = []
        for at in range(NUM_CHARS):
            gate, new = (self.recall(state) + read[:, at]).chunk(2, dim=1)
            kept = snap((gate + 0.5).clamp(0, 1))
            state = snap(state + kept * (snap(new.clamp(-1, 1)) - state))
            states.append(state)
        return 8 * self.score(torch.stack(states, dim=1)).squeeze(2)


class Generator(nn.Module):
    """Guesses the next character from the 32 before it, with three layers."""

    num_seen = 32

    def __init__(self, width: int = 896) -> None:
        super().__init__()
        self.read = nn.Embedding(NUM_CODES, width // self.num_seen)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.guess = nn.Linear(width, NUM_CODES)
        nn.init.normal_(self.read.weight, std=0.2)

    def forward(self, seen: Tensor) -> Tensor:
        """Scores the next character, given the last `num_seen` characters of each text of a batch."""
        hidden = snap(self.read(seen).flatten(1))
        for layer in (self.first, self.second):
            hidden = snap(layer(hidden).clamp(0, 1))
        return 8 * self.guess(hidden)

    def continue_text(self, text: Tensor) -> Tensor:
        """Returns the next characters of each text, always the likeliest ones."""
        seen = _codes(text[:, -self.num_seen :])
        for _ in range(NUM_CONTINUED):
            seen = torch.cat([seen, self(seen[:, -self.num_seen :]).argmax(dim=1, keepdim=True)], dim=1)
        return seen[:, self.num_seen :].to(torch.uint8)


class Grid(nn.Module):
    """A parametrisation that keeps a weight on the grid."""

    def forward(self, weight: Tensor) -> Tensor:
        return snap(weight.clamp(-0.49, 0.49), GRID_BITS)


def load_net(name: str, net: Net) -> Net:
    """Returns a net with the weights that `train.py` made."""
    net.load_state_dict(load_file(weights_of(name)))
    return net.eval()


def weights_of(name: str) -> Path:
    """Returns the file that `train.py` wrote for a net."""
    path = WEIGHTS / f"{name}.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{path.name} is missing; make it with: python {path.parent.parent.name}/train.py")
    return path
