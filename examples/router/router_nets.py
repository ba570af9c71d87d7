"""The router's centroids and the experts' nets."""

from pathlib import Path

from router_minilm import WIDTH, load_words
from safetensors.torch import load_file
from torch import Tensor, nn

WEIGHTS = Path(__file__).parent / "weights"


class Expert(nn.Module):
    """Reads a question's word pieces with a recurrent net in both directions; returns a score for each intent.

    Knows MiniLM's vectors of the pieces, which are not trained and not saved, but nothing else of MiniLM.
    """

    def __init__(self, num_intents: int, words: Tensor, width: int = 384) -> None:
        super().__init__()
        self._words = words
        self.read = nn.GRU(WIDTH, width, batch_first=True, bidirectional=True)
        self.judge = nn.Linear(2 * width, num_intents)
        self.drop = nn.Dropout(0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        vectors = self.drop(10 * self._words[tokens])  # MiniLM's numbers are small: about 0.05
        states, _ = self.read(vectors)
        highest = states.masked_fill((tokens == 0)[..., None], -1).amax(dim=1)
        return self.judge(self.drop(highest))


def load_expert(topic: str, num_intents: int) -> Expert:
    """Returns an expert with the weights that `train.py` made."""
    expert = Expert(num_intents, load_words())
    expert.load_state_dict(_load(topic))
    return expert.eval()


def load_centroids() -> Tensor:
    """Returns the mean embedding of each topic's questions."""
    return _load("centroids")["centroids"]


def _load(name: str) -> dict[str, Tensor]:
    path = WEIGHTS / f"{name}.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{path.name} is missing; make it with: python {path.parent.parent.name}/train.py")
    return load_file(path)
