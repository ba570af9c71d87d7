"""A guard: says of a question whether it asks for something harmful."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

MIN_HARM = 0.0
"""From this score, a question counts as harmful: a probability of one half."""


class Guard(nn.Module):
    """Scores questions by the tokens that they hold, in any order."""

    def __init__(self, num_tokens: int = 512, width: int = 64) -> None:
        super().__init__()
        self.read = nn.EmbeddingBag(num_tokens, width)
        self.score = nn.Linear(width, 1)

    def forward(self, questions: Sequence[Sequence[int]]) -> Tensor:
        """Returns for each question the logarithm of the odds that it is harmful."""
        tokens = torch.tensor([token for question in questions for token in question], dtype=torch.int64)
        lengths = torch.tensor([0, *map(len, questions)])
        return self.score(self.read(tokens, lengths.cumsum(0)[:-1]).relu())[:, 0]
