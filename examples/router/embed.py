"""Sentence embeddings alone. The encoder may be split over several processes, by a plan:

dyorc plan examples/router/router_bert.py:make_encoder --inference --cluster examples/router/two_cores.toml -o encode.plan
dyorc serve examples/router/embed.py:embed --plan encode=encode.plan
"""

import numpy as np
from jaxtyping import Float, Int
from router_bert import MAX_SAMPLES, WEIGHTS, Bert
from torch import Tensor
from workflow import tokenise

import dyorc


@dyorc.program(max_batch_size=MAX_SAMPLES)
class Encode:
    """Embeds tokenised texts. It knows nothing of plans."""

    def __init__(self) -> None:
        self.net = dyorc.load_module(Bert, WEIGHTS)

    def __call__(self, tokens: Int[Tensor, "batch 32"]) -> Float[Tensor, "batch 384"]:
        return self.net(tokens)


encode = Encode()


@dyorc.workflow
async def embed(text: dyorc.Bytes[np.ndarray, ""]) -> Float[np.ndarray, "384"]:
    return encode(tokenise(text))
