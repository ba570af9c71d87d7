"""`examples/guarded`: the same bits in every batch, and stories of the right pieces, with any weights on their grid."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

import dyorc
from dyorc.config import EngineConfig, SpeculationConfig
from tests.unit.engine.driver import World

FOLDER = Path(__file__).parents[2] / "examples" / "guarded"
Net = TypeVar("Net", bound=nn.Module)
BATCH_SIZES = (1, 5, 8)


@pytest.fixture
def nets(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Returns the example's nets."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("guarded_nets")


def fill(nets: ModuleType, net: Net) -> Net:
    """Sets a net's weights to values from the whole grid, so that sums are as long as they can be."""
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(nets.Grid()(torch.empty_like(weight).uniform_(-0.6, 0.6)))
    return net.eval()


def messages() -> Tensor:
    return torch.randint(128, (32, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@torch.inference_mode()
def test_the_guards_score_does_not_depend_on_the_batch(nets: ModuleType) -> None:
    guard, texts = fill(nets, nets.Guard()), messages()
    together = guard.scores(texts)
    assert together.unique().numel() > 100, "the scores say nothing"
    for size in BATCH_SIZES:
        assert torch.equal(torch.cat([guard.scores(part) for part in texts.split(size)]), together)


@torch.inference_mode()
def test_the_generators_text_does_not_depend_on_the_batch(nets: ModuleType) -> None:
    generator, texts = fill(nets, nets.Generator()), messages()
    seen = texts[:, -generator.num_seen :].long()
    together, continued = generator(seen), generator.continue_text(texts)
    assert together.unique().numel() > 100, "the scores say nothing"
    for size in BATCH_SIZES:
        assert torch.equal(torch.cat([generator(part) for part in seen.split(size)]), together)
        assert torch.equal(torch.cat([generator.continue_text(part) for part in texts.split(size)]), continued)


# Stories

NUM_PIECES = 3


@pytest.fixture
def example(nets: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Returns the example's workflows, whose nets need no training: about half of all messages are harmful to this guard."""
    spec = importlib.util.spec_from_file_location("guarded_workflow", FOLDER / "workflow.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "weights_of", str)
    monkeypatch.setattr(dyorc, "load_module", lambda make, path: fill(nets, make()))
    monkeypatch.setattr(module, "MIN_HARM", float(scores(nets).median()))
    # Replicas set it, which are processes of their own; here it would outlast the test.
    monkeypatch.setattr(torch, "set_num_threads", lambda num: None)
    return module


@torch.inference_mode()
def scores(nets: ModuleType) -> Tensor:
    """Returns how harmful the guard finds each message."""
    return fill(nets, nets.Guard())(messages())


@torch.inference_mode()
def pieces_by_hand(nets: ModuleType, text: Tensor) -> list[list[int]]:
    """Returns what the generator adds to a text, and to what it has added."""
    generator, written = fill(nets, nets.Generator()), text
    for _ in range(NUM_PIECES):
        written = torch.cat([written, generator.continue_text(written[None, -64:])[0]])
    return written[64:].reshape(NUM_PIECES, 32).tolist()


def test_a_story_has_the_pieces_computed_by_hand(nets: ModuleType, example: ModuleType) -> None:
    harmless = messages()[scores(nets).argmin()]
    pieces = [piece.tolist() for piece in dyorc.run(example.guarded_story, harmless, NUM_PIECES)]
    assert pieces == pieces_by_hand(nets, harmless)
    assert pieces[0] != pieces[1], "the pieces say nothing"


def test_a_harmful_message_gets_the_refusal_as_its_only_piece(nets: ModuleType, example: ModuleType) -> None:
    harmful = messages()[scores(nets).argmax()]
    (piece,) = dyorc.run(example.guarded_story, harmful, NUM_PIECES)
    assert piece.tobytes() == example.REFUSAL


@pytest.mark.parametrize("is_harmful", [False, True], ids=["harmless", "harmful"])
def test_pieces_are_made_while_the_guard_reads_and_none_leaves_before_it_says_yes(
    nets: ModuleType, example: ModuleType, is_harmful: bool
) -> None:
    found = scores(nets)
    text = messages()[found.argmax() if is_harmful else found.argmin()]
    world = _eager_world(example)
    request = world.submit(example.guarded_story, text, num_pieces=NUM_PIECES)
    for _ in range(NUM_PIECES):
        world.finish(world.batches(example.generate)[0])
    assert not world.num_parts[request]
    world.finish(world.batches(example.guard)[0])
    world.finish_all()
    pieces = [piece.tolist() for piece in world.part_values(request)]
    assert pieces == ([list(example.REFUSAL)] if is_harmful else pieces_by_hand(nets, text))
    world.check_nothing_is_left()


def _eager_world(example: ModuleType) -> World:
    """Makes a world with replicas of both programs that are known to be slow, under an engine that always guesses."""
    speculation = SpeculationConfig(margin=0, max_wasted_ratio=0.95, min_probability=0.0, max_depth=8, burst_s=1e6)
    programs: list[Any] = [example.guard, example.generate]
    world = World(programs, EngineConfig(speculation=speculation))
    for program in programs:
        world.join(program)
        pool = world.engine.scheduler.pools[program.name]
        pool.latency.observe(1, 0.1)
        pool.sojourn_ns.add(0.1e9)
        pool.demand.add(0, 0)
    return world
