"""Text to train models of characters on, which every Python brings along: its manual."""

import pydoc_data.topics

import torch

NUM_CHARACTERS = 128


def manual() -> torch.Tensor:
    """Returns the numbers of the manual's characters, `[characters]`."""
    text = "".join(pydoc_data.topics.topics.values()).encode("ascii", "ignore")
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long() % NUM_CHARACTERS


def draw(text: torch.Tensor, generator: torch.Generator, num_sequences: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws sequences of a text, and for each of their characters the next one: both `[sequences, length]`."""
    starts = torch.randint(0, len(text) - length - 1, (num_sequences,), generator=generator)
    rows = torch.stack([text[start : start + length + 1] for start in starts.tolist()])
    return rows[:, :-1], rows[:, 1:]
