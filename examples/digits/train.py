"""Trains the two nets on scikit-learn's handwritten digits; takes seconds on one core. Writes ``weights/*.safetensors``.

Prints the accuracy of both nets and of the cascade on digits that neither has seen.
"""

from collections.abc import Callable

import torch
from digits_nets import CONFIDENT, WEIGHTS, digits, large_net, small_net
from safetensors.torch import save_file
from torch import Tensor, nn


def main() -> None:
    """Trains, evaluates and saves."""
    torch.set_num_threads(1)
    images, labels = digits(is_held_out=False)
    nets = {
        "small": _train(small_net, images, labels, num_epochs=60),
        "large": _train(large_net, images, labels, num_epochs=25),
    }
    WEIGHTS.mkdir(exist_ok=True)
    for name, net in nets.items():
        save_file(net.state_dict(), WEIGHTS / f"{name}.safetensors")
    _judge(nets["small"], nets["large"])


def _train(make: Callable[[], nn.Module], images: Tensor, labels: Tensor, num_epochs: int) -> nn.Module:
    """Trains with Adam on shuffled batches."""
    torch.manual_seed(0)
    net = make()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    net.train()
    for _ in range(num_epochs):
        for batch in torch.randperm(len(images)).split(64):
            loss = nn.functional.cross_entropy(net(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net.eval()


@torch.inference_mode()
def _judge(small: nn.Module, large: nn.Module) -> None:
    images, labels = digits(is_held_out=True)
    quick, thorough = small(images).softmax(1), large(images).softmax(1)
    is_sure = quick.max(1).values >= CONFIDENT
    cascade = torch.where(is_sure[:, None], quick, thorough)
    print(f"held-out accuracy on {len(labels)} digits:")
    for name, probabilities in (("small net", quick), ("large net", thorough), ("cascade", cascade)):
        print(f"  {name:<10} {(probabilities.argmax(1) == labels).float().mean():.1%}")
    print(f"  the cascade asks the large net for {(~is_sure).float().mean():.0%} of them")


if __name__ == "__main__":
    main()
