"""The two nets of the cascade, and the held-out digits on which they are tested."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

WEIGHTS = Path(__file__).parent / "weights"
CONFIDENT = 0.9
"""From this probability, the small net's answer counts."""
NUM_TRAINED = 1_200
"""Of scikit-learn's 1,797 digits the first 1,200 train the nets; the other 597 are held out. Different people wrote them."""


def small_net() -> nn.Module:
    """Reads most digits: one linear layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def large_net() -> nn.Module:
    """Reads the hard ones: a convolutional net, about 2,000 times the work."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def load_net(name: str, net: nn.Module) -> nn.Module:
    """Returns a net with the weights that `train.py` made."""
    net.load_state_dict(load_file(weights_of(name)))
    return net.eval()


def weights_of(name: str) -> Path:
    """Returns the file that `train.py` wrote for a net."""
    path = WEIGHTS / f"{name}.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{path.name} is missing; make it with: python {path.parent.parent.name}/train.py")
    return path


def digits(*, is_held_out: bool) -> tuple[Tensor, Tensor]:
    """Returns pictures of shape [n, 1, 8, 8] in 0..1, and their labels."""
    from sklearn.datasets import load_digits  # here, because it takes longer to import than a server to start

    data = load_digits()
    part = slice(NUM_TRAINED, None) if is_held_out else slice(NUM_TRAINED)
    images = torch.from_numpy(data.images[part]).float().unsqueeze(1) / 16.0
    return images, torch.from_numpy(data.target[part])
