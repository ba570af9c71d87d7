"""Trains the net of the workload `loop`; takes a minute on two cores. Writes ``weights/refiner.safetensors``.

    python -m benchmarks.workloads.loop.train

Prints how many unseen digits it has read by each turn, and when it stops.
"""

from __future__ import annotations

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks.workloads.loop.refiner import MAX_TURNS, NUM_CLASSES, WEIGHTS, Refiner, add_noise, all_turns, digits
from benchmarks.workloads.loop.workload import SURE

_NUM_READ = 1_000
"""How many digits train the reader. The others train the halting head, for which the reader has to be wrong as often as in
use."""
_NUM_STEPS = 140
_BATCH = 48
_LEARNING_RATE = 2e-3
_NUM_HALTING_DRAWS = 6
_NUM_HALTING_EPOCHS = 20


def main() -> None:
    """Trains, evaluates and saves."""
    torch.manual_seed(0)
    noise = torch.Generator().manual_seed(0)
    images, labels = digits(is_held_out=False)
    net = Refiner()
    _train_reader(net, images[:_NUM_READ], labels[:_NUM_READ], noise)
    _train_halting(net, images[_NUM_READ:], labels[_NUM_READ:], noise)
    WEIGHTS.parent.mkdir(exist_ok=True)
    save_file(net.state_dict(), WEIGHTS)
    _judge(net, noise)


def _train_reader(net: Refiner, images: Tensor, labels: Tensor, noise: torch.Generator) -> None:
    """Trains with Adam on the answers of all turns, with new noise in every step. Half of the steps are short, since most digits
    need few turns."""
    optimizer = torch.optim.Adam(net.parameters(), lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=_NUM_STEPS)
    for step in range(_NUM_STEPS):
        num_turns = MAX_TURNS if step % 2 else MAX_TURNS // 2
        batch = torch.randint(len(images), (_BATCH,), generator=noise)
        scores, _ = all_turns(net, add_noise(images[batch], noise), num_turns)
        loss = nn.functional.cross_entropy(scores.reshape(-1, NUM_CLASSES), labels[batch].repeat(num_turns))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def _train_halting(net: Refiner, images: Tensor, labels: Tensor, noise: torch.Generator) -> None:
    """Trains only the head, which learns from states whether the answer is right."""
    known: list[Tensor] = []
    hook = net.halt.register_forward_pre_hook(lambda _, inputs: known.append(inputs[0]))
    with torch.no_grad():
        scores, _ = all_turns(net, add_noise(images.repeat(_NUM_HALTING_DRAWS, 1, 1, 1), noise))
    hook.remove()
    states = torch.cat(known)
    is_right = (scores.argmax(dim=2) == labels.repeat(_NUM_HALTING_DRAWS)).float().flatten()
    optimizer = torch.optim.AdamW(net.halt.parameters(), lr=_LEARNING_RATE, weight_decay=0.1)
    for _ in range(_NUM_HALTING_EPOCHS):
        for batch in torch.randperm(len(states), generator=noise).split(1024):
            loss = nn.functional.binary_cross_entropy_with_logits(net.halt(states[batch])[:, 0], is_right[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def _judge(net: Refiner, noise: torch.Generator) -> None:
    images, labels = digits(is_held_out=True)
    scores, halts = all_turns(net, add_noise(images, noise))
    is_right = scores.argmax(dim=2) == labels
    is_sure = halts.sigmoid() >= SURE
    is_sure[-1] = True
    turns = is_sure.float().argmax(dim=0)
    print(f"held-out accuracy on {len(labels)} noisy digits, by turn:")
    print("  " + " ".join(f"{share:.0%}" for share in is_right.float().mean(dim=1).tolist()))
    share = is_right[turns, torch.arange(len(labels))].float().mean()
    print(f"  when it stops: {share:.1%}, after {turns.float().mean() + 1:.1f} turns on average")
    print("  digits by turns: " + " ".join(str(number) for number in torch.bincount(turns, minlength=MAX_TURNS).tolist()))


if __name__ == "__main__":
    main()
