"""How much memory a training step takes, by a formula."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """The bytes of one step.

    Attributes:
        parameters: Of all parameters.
        largest_layer: Of the largest layer's parameters.
        activations: Of one microbatch.
    """

    parameters: int
    largest_layer: int
    activations: int

    @property
    def adam(self) -> int:
        """Parameters, their gradients added up, two averages, and activations."""
        return 4 * self.parameters + self.activations

    @property
    def adama(self) -> int:
        """The same with the gradients of one layer only."""
        return 3 * self.parameters + self.largest_layer + self.activations

    @property
    def saved_ratio(self) -> float:
        """The part of Adam's bytes that AdamA does not need; never as much as a quarter."""
        return 1.0 - self.adama / self.adam
