"""The twenty lines of README.md: a small net, and a large one where it is unsure. Their weights are random."""

from jaxtyping import Float
from torch import Tensor, nn

import dyorc


@dyorc.program(max_batch_size=32)
class Small:
    def __init__(self):  # runs once in each replica: load the weights here
        self.net = nn.Linear(64, 10)

    def __call__(self, image: Float[Tensor, "batch 64"]) -> Float[Tensor, "batch 10"]:
        return self.net(image).softmax(1)


@dyorc.program(max_batch_size=32, num_replicas=2, ray_actor_options={"num_cpus": 2})
class Large:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 10))

    def __call__(self, image: Float[Tensor, "batch 64"]) -> Float[Tensor, "batch 10"]:
        return self.net(image).softmax(1)


small, large = Small(), Large()  # the programs; nothing is loaded yet


@dyorc.workflow
async def classify(image: Float[Tensor, "64"]) -> Float[Tensor, "10"]:
    guess = small(image)  # a future tensor: nothing waits
    if await dyorc.when(guess, lambda p: p.max() > 0.9):  # a decision on its value
        return guess
    return large(image)
