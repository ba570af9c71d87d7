"""Trains guard and generator on messages that `guarded_texts.py` makes up; takes a minute on one core.

Writes ``weights/*.safetensors``. Prints how well both do on messages that they have not seen.
"""

from collections.abc import Callable

import torch
from guarded_nets import MIN_HARM, WEIGHTS, Generator, Grid, Guard
from guarded_texts import NUM_CHARS, Message, draw_messages, draw_prose, encode
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils import parametrize

GUARD_STEPS, GUARD_BATCH = 90, 64
GENERATOR_STEPS, GENERATOR_BATCH = 220, 384


def main() -> None:
    """Trains, saves and evaluates."""
    torch.set_num_threads(1)
    guard, generator = train_guard(), train_generator()
    WEIGHTS.mkdir(exist_ok=True)
    save_file(guard.state_dict(), WEIGHTS / "guard.safetensors")
    save_file(generator.state_dict(), WEIGHTS / "generator.safetensors")
    judge(guard, generator)


def train_guard() -> Guard:
    """Trains the guard on one harmful message for every two harmless ones. For each character, it is told whether it has seen
    enough."""
    messages = draw_messages(GUARD_STEPS * GUARD_BATCH, 1 / 3, seed=0, is_held_out=False)
    texts = torch.stack([encode(message.text) for message in messages])
    targets = torch.stack([_targets(message) for message in messages])
    torch.manual_seed(0)
    guard = Guard()

    def loss_of(step: int) -> Tensor:
        part = slice(step * GUARD_BATCH, (step + 1) * GUARD_BATCH)
        scores, wanted = guard.scores(texts[part]), targets[part]
        return nn.functional.binary_cross_entropy_with_logits(scores, wanted.clamp(min=0), (wanted >= 0).float())

    _train(guard, loss_of, GUARD_STEPS, learning_rate=4e-3)
    return guard


def _targets(message: Message) -> Tensor:
    """Returns a label for each character: 0 before something harmful, 1 in its second half, and -1, which does not count,
    elsewhere."""
    targets = torch.zeros(NUM_CHARS)
    if message.harm:
        start = NUM_CHARS - len(message.text)
        targets[start + message.harm.start :] = -1
        targets[start + (message.harm.start + message.harm.stop) // 2 : start + message.harm.stop] = 1
    return targets


def train_generator() -> Generator:
    """Trains the generator to predict every character of some prose from those before it."""
    windows, targets = _windows(draw_prose(3_000, seed=1))
    torch.manual_seed(0)
    generator = Generator()

    def loss_of(step: int) -> Tensor:
        chosen = torch.randint(len(windows), (GENERATOR_BATCH,))
        return nn.functional.cross_entropy(generator(windows[chosen]), targets[chosen])

    _train(generator, loss_of, GENERATOR_STEPS, learning_rate=3e-3)
    return generator


def _windows(texts: list[str]) -> tuple[Tensor, Tensor]:
    """Returns each character and the 32 before it. The first ones of a text have zeros before them."""
    codes = [torch.tensor(list(bytes(Generator.num_seen) + text.encode())) for text in texts]
    windows = torch.cat([each[:-1].unfold(0, Generator.num_seen, 1) for each in codes])
    return windows, torch.cat([each[Generator.num_seen :] for each in codes])


def _train(net: nn.Module, loss_of: Callable[[int], Tensor], num_steps: int, learning_rate: float) -> None:
    """Trains with Adam, keeping all weights on their grid."""
    owners = [module for module in net.modules() if isinstance(module, nn.Linear | nn.Embedding)]
    names = [(owner, name) for owner in owners for name, _ in list(owner.named_parameters(recurse=False))]
    for owner, name in names:
        parametrize.register_parametrization(owner, name, Grid())
    optimizer = torch.optim.Adam(net.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=num_steps, pct_start=0.15)
    for step in range(num_steps):
        with parametrize.cached():
            loss = loss_of(step)
            optimizer.zero_grad()
            loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        for owner, name in names:
            parametrize.remove_parametrizations(owner, name, leave_parametrized=True)
    net.eval()


@torch.inference_mode()
def judge(guard: Guard, generator: Generator) -> None:
    """Evaluates both on messages with held-out names, hosts and pairs of words, and on other prose."""
    messages = draw_messages(2_000, 0.5, seed=2, is_held_out=True)
    is_stopped = guard(torch.stack([encode(message.text) for message in messages])) >= MIN_HARM
    is_harmless = torch.tensor([not message.harm for message in messages])
    windows, targets = _windows(draw_prose(50, seed=3))
    print(f"guard, on {len(is_stopped):,} held-out messages:")
    print(f"  {is_stopped[~is_harmless].float().mean():.1%} of the harmful ones stopped, ", end="")
    print(f"{is_stopped[is_harmless].float().mean():.1%} of the harmless ones")
    is_right = generator(windows).argmax(dim=1) == targets
    print(f"generator, on {len(targets):,} held-out characters: {is_right.float().mean():.1%} guessed")


if __name__ == "__main__":
    main()
