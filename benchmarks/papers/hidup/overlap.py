"""Whether two microbatches really communicate while they compute: two real ranks of this machine, whose links are slow.

The same plan runs in turns with communication during computation and without; what else the machine does meets both.
"""

from collections.abc import Iterator
from statistics import median

import torch

from benchmarks.papers.rows import own_row
from benchmarks.papers.study import Progress
from benchmarks.papers.table import Row
from dyorc.planner import models
from dyorc.planner.cluster import even_cluster
from dyorc.planner.plan import Plan
from dyorc.planner.planners import PLANNERS
from dyorc.planner.planners.hidup import Duplex
from dyorc.planner.planners.strategy_assignment import assignment_of
from dyorc.planner.program import TensorProgram, capture
from dyorc.planner.runtime import LinkShape, RankOptions, Ranks

_ROUNDS, _STEPS, _WARM_UP_STEPS = 4, 3, 1
_MBYTES_PER_S = (10.0, 40.0)


def on_real_ranks(progress: Progress, mbytes_per_s: tuple[float, ...] = _MBYTES_PER_S) -> Iterator[Row]:
    """Yields a step's seconds without overlap relative to those with it, for links of several speeds."""
    torch.manual_seed(0)
    module, inputs = models.gpt(layers=2, hidden=128, vocabulary=256, sequence=64, batch=16)
    program = capture(module, inputs)
    held = {name: tensor.detach() for name, tensor in (*module.named_parameters(), *module.named_buffers())}
    sources = {name: held[name] for name in program.sources if name in held} | dict(zip(program.inputs, inputs, strict=True))
    plans = {"two microbatches": megatron_in_halves(program), "one batch": PLANNERS["megatron"](program, even_cluster(2))}
    for rate in mbytes_per_s:
        link = LinkShape(bytes_per_s=rate * 1e6)
        with Ranks(RankOptions(num_ranks=2, device="cpu", links={(0, 1): link, (1, 0): link})) as ranks:
            for what, plan in plans.items():
                progress(f"real ranks, {what} over {rate:g} MB/s")
                apart_s, overlapped_s = _in_turns(ranks, plan, program, sources)
                yield own_row(
                    "real ranks",
                    f"GPT in Megatron's shards, {what}, {rate:g} MB/s: step without overlap / with it",
                    f"{apart_s / overlapped_s:.2f}",
                    f"{apart_s * 1e3:.0f} and {overlapped_s * 1e3:.0f} ms, medians of {_ROUNDS} rounds in turns",
                )


def megatron_in_halves(program: TensorProgram) -> Plan:
    """Megatron's shards on two ranks, whose activations are reduced in each layer, in two interleaved microbatches."""
    cluster = even_cluster(2)
    duplex = Duplex(program, cluster, {})
    assignment = assignment_of(PLANNERS["megatron"](program, cluster), duplex.halves.strategies)
    assert assignment
    return duplex.plan(duplex.time_assignment(assignment, (1.0, 1.0)), (1.0, 1.0))


def _in_turns(ranks: Ranks, plan: Plan, program: TensorProgram, sources: dict[str, torch.Tensor]) -> tuple[float, float]:
    """The median seconds of a step without overlap, and with it."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(_ROUNDS):
        for overlap in (False, True):
            ranks.load(plan, sources, overlap=overlap)
            for step in range(_STEPS):
                ranks.begin_step({name: sources[name] for name in program.inputs}, answer=())
                took_s = max(ranks.end_step().seconds)
                if step >= _WARM_UP_STEPS:
                    seconds[overlap].append(took_s)
    return median(seconds[False]), median(seconds[True])
