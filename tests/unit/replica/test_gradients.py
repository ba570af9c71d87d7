"""Gradients inside a program: forces are those of an energy."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

import dyorc


@dyorc.program
class Springs:
    def __init__(self) -> None:
        self.stiffness = torch.nn.Parameter(torch.tensor(3.0))

    def __call__(self, x: Float[Tensor, "batch n"]) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch n"]]:
        assert not torch.is_grad_enabled()
        with torch.enable_grad():
            x.requires_grad_()
            energy = 0.5 * self.stiffness * (x**2).sum(dim=1)
            (gradient,) = torch.autograd.grad(energy.sum(), x)
        return energy, -gradient


def test_a_program_may_take_gradients_of_its_inputs() -> None:
    springs = Springs()
    for x in (np.array([1.0, 2.0], np.float32), np.array([0.5, -1.0], np.float32)):
        energy, forces = dyorc.run(springs, x)
        np.testing.assert_allclose(energy, 1.5 * (x**2).sum(), rtol=1e-6)
        np.testing.assert_allclose(forces, -3 * x, rtol=1e-6)
