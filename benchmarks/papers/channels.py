"""RPC Considered Harmful (arXiv 1805.08430; EuroSys'19): tensors that are written where they are needed, compared with gRPC.

Two real ranks on this machine; shared memory stands for memory that is reached by RDMA. The same plan runs over each channel, in
turns, so that what disturbs one disturbs all.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

import torch
from torch import nn

from benchmarks.papers.bands import EXACT
from benchmarks.papers.models import inception
from benchmarks.papers.rows import fact_row, not_here_row, own_row, ratio_row
from benchmarks.papers.study import Progress, Study, unjudged
from benchmarks.papers.table import Kind, Line, Row
from dyorc.planner.cluster import ChannelCost, Cluster, fitted_line, one_machine
from dyorc.planner.measure import transfers
from dyorc.planner.models import gpt, vgg19
from dyorc.planner.passes.channels import with_channels
from dyorc.planner.plan import ChannelKind, Plan, Transfer
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram, ValueKind, capture
from dyorc.planner.runtime import RankOptions, Ranks, RunResult
from dyorc.planner.runtime.message_lanes import lanes_of, slot_bytes_of
from dyorc.planner.verify import verify

Model = tuple[nn.Module, tuple[torch.Tensor, ...]]
_ABOUT = """Two real ranks on one machine with two shared cores; shared memory stands for memory that is reached by RDMA. Messages
are those of a plan, with all that the runtime does for them; training is by the planner `parameter_server`, where each rank works
and serves half of the parameters. Times are medians of turns beside other work: they say no more than the order of magnitude."""
_PUBLISHED_MOST = 25.0
_KINDS = tuple(ChannelKind)
_CHAIN = 4


def reproduce(*, quick: bool = False, progress: Progress = lambda text: None) -> Study:
    """Returns what computes the table.

    Args:
        quick: Fewer sizes of messages, and smaller models.
        progress: Called with the name of each step.
    """
    parts: dict[str, Iterable[Row | Line]] = {
        "copies": _copies(),
        "messages": _messages(quick, progress),
        **{f"training of {name}": _training(name, build, quick, progress) for name, build in _models(quick).items()},
        "elsewhere": _elsewhere(),
    }
    if quick:
        parts |= {
            name: unjudged(part, "nine sizes of messages" if name == "messages" else "larger models")
            for name, part in parts.items()
            if name not in ("copies", "elsewhere")
        }
    title = "RPC Considered Harmful (EuroSys'19, arXiv 1805.08430)"
    return Study(name="channels", title=title, about=_ABOUT, parts=parts, is_quick=quick)


def _copies() -> Iterator[Row]:
    with Ranks(RankOptions(num_ranks=2, device="cpu")) as ranks:
        yield from copies(ranks)
    yield slot_row()


def _messages(quick: bool, progress: Progress) -> Iterator[Row]:
    sizes = [1 << power for power in ((10, 16, 20) if quick else range(10, 27, 2))]
    with Ranks(RankOptions(num_ranks=2, device="cpu")) as ranks:
        times = message_times(ranks, sizes, quick, progress)
    yield from _timed(times)
    yield _choice(times)


def _training(name: str, build: Callable[[], Model], quick: bool, progress: Progress) -> Iterator[Row]:
    progress(f"training of {name}")
    with Ranks(RankOptions(num_ranks=2, device="cpu")) as ranks:
        yield from training_rows(ranks, name, build, 2 if quick else 5)


Times = Mapping[int, Mapping[ChannelKind, Sequence[float]]]
"""Seconds of one message: by its bytes and its channel, of each turn."""


def message_times(ranks: Ranks, sizes: Sequence[int], quick: bool, progress: Progress) -> Times:
    """Times messages of each size over each channel, in turns."""
    seconds_by_kind: dict[int, dict[ChannelKind, list[float]]] = {}
    for size in sizes:
        progress(f"messages of {size:,} bytes")
        spent: dict[ChannelKind, list[float]] = {kind: [] for kind in _KINDS}
        for _ in range(2 if quick else 5):
            for kind, seconds in spent.items():
                seconds += _times_of(ranks, transfers(0, 1, size, _CHAIN, kind), 4)
        seconds_by_kind[size] = spent
    return seconds_by_kind


def _times_of(ranks: Ranks, plan: Plan, num: int) -> list[float]:
    sources = {name: torch.zeros(plan.values[name].shape) for name in plan.sources}
    ranks.load(plan, sources)
    seconds: list[float] = []
    for _ in range(num + 1):
        ranks.begin_step({}, answer=())
        seconds.append(ranks.end_step().seconds[1] / _CHAIN)
    return seconds[1:]


def _timed(times: Times) -> Iterator[Row]:
    best = max(times, key=lambda size: _ratio(times, size, ChannelKind.STATIC))
    yield ratio_row(
        "abstract",
        "gRPC / shared memory, up to",
        _PUBLISHED_MOST,
        _ratio(times, best, ChannelKind.STATIC),
        note=f"one message of {best:,} bytes, static; published: benchmarks of deep learning, TensorFlow's gRPC over TCP",
    )
    for size in times:
        ours = ", ".join(f"{kind} {median(times[size][kind]) * 1e6:,.0f}" for kind in _KINDS)
        tail = ", ".join(f"{kind} {max(times[size][kind]) * 1e6:,.0f}" for kind in _KINDS)
        static, dynamic = (_ratio(times, size, kind) for kind in (ChannelKind.STATIC, ChannelKind.DYNAMIC))
        note = f"gRPC / static {static:.1f}, gRPC / dynamic {dynamic:.1f}; the slowest: {tail}"
        yield own_row("messages", f"{size:,} bytes: microseconds a message", ours, note)
    size = max(times)
    rates = ", ".join(f"{kind} {size / median(times[size][kind]) / 1e9:.2f}" for kind in _KINDS)
    yield own_row("messages", f"GB/s at {size:,} bytes", rates, "p50")


def _ratio(times: Times, size: int, kind: ChannelKind) -> float:
    return median(times[size][ChannelKind.GRPC]) / median(times[size][kind])


def copies(ranks: Ranks) -> Iterator[Row]:
    """Yields the rows of what is copied, which is counted."""
    size = 1 << 16
    counted: dict[ChannelKind, float] = {}
    for kind in _KINDS:
        plan = transfers(0, 1, size, 1, kind)
        ran = ranks.run(plan, {name: torch.zeros(plan.values[name].shape) for name in plan.sources})
        counted[kind] = sum(ran.copied_bytes) / size
    for kind, published, note in (
        (ChannelKind.STATIC, "1, by the sender's write", "computed with where it lies"),
        (ChannelKind.DYNAMIC, "1, by the receiver's read", "into memory that the sender takes; computed with where it lies"),
    ):
        yield fact_row(
            "section 3",
            f"{kind} placement: copies of a message between the two programs",
            published,
            f"{counted[kind]:g}",
            is_so=counted[kind] == 1.0,
            band=EXACT,
            note=note,
        )
    yield fact_row(
        "section 3",
        "allocation sites traced: copies by the sender from the second step on",
        "0",
        f"{counted[ChannelKind.STATIC]:g}",
        is_so=counted[ChannelKind.STATIC] == 0.0,
        band=EXACT,
        note="operations do not compute into a slot here; programs that are served do, with dyorc.empty",
    )


def _choice(times: Times) -> Row:
    """Whether the pass chooses what was fastest, by lines through the same times."""
    lines = {kind: fitted_line([(size, median(spent[kind])) for size, spent in times.items()]) for kind in _KINDS}
    gloo = lines[ChannelKind.GLOO]
    cluster = one_machine(2, bytes_per_s=1 / max(gloo.s_per_byte, 1e-13), latency_s=gloo.latency_s)
    costs = [
        ChannelCost(kind=kind, bytes_per_s=1 / max(line.s_per_byte, 1e-13), latency_s=line.latency_s)
        for kind, line in lines.items()
        if kind is not ChannelKind.GLOO
    ]
    cluster = replace(cluster, channels=tuple(costs))
    loss = [median(times[size][_chosen(cluster, size)]) / min(median(spent) for spent in times[size].values()) for size in times]
    num = sum(ratio == 1.0 for ratio in loss)
    return own_row(
        "placement",
        "channel chosen by measured costs: sizes at which it is the fastest",
        f"{num} of {len(loss)}",
        f"elsewhere it takes at most {max(loss):.2f} times as long as the fastest",
    )


def _chosen(cluster: Cluster, size: int) -> ChannelKind:
    plan = with_channels(transfers(0, 1, size, 1), cluster)
    edges = [edge for step in plan.steps if isinstance(step, Transfer) for edge in step.edges]
    return edges[0].kind if edges else ChannelKind.GLOO


def _models(quick: bool) -> Mapping[str, Callable[[], Model]]:
    if quick:
        return {
            "VGG": lambda: vgg19(width=4, inner=128, batch=4),
            "Inception": lambda: inception(blocks=2, width=8, batch=4),
            "GPT": lambda: gpt(layers=1, hidden=64, batch=2),
        }
    return {
        "VGG": lambda: vgg19(width=8, inner=1024, batch=4),
        "Inception": lambda: inception(blocks=8, width=32, batch=4),
        "GPT": lambda: gpt(layers=4, hidden=256, heads=4, vocabulary=4096, batch=2),
    }


def training_rows(ranks: Ranks, name: str, build: Callable[[], Model], num_turns: int) -> Iterator[Row]:
    """Yields what comes out when a model is trained by parameter servers over each channel, in turns."""
    torch.manual_seed(0)
    module, inputs = build()
    program, cluster = capture(module, inputs), one_machine(2)
    plan = PLANNERS["parameter_server"](program, cluster)
    plans = {kind: with_channels(plan, cluster, [kind]) for kind in _KINDS}
    is_proved = all(verify(program, each).is_proved for each in plans.values())
    sources = _sources_of(program, module, inputs)
    step_s: dict[ChannelKind, list[float]] = {kind: [] for kind in _KINDS}
    results: dict[ChannelKind, Mapping[str, torch.Tensor]] = {}
    for _ in range(num_turns):
        for kind, each in plans.items():
            ran = _stepped(ranks, each, sources)
            step_s[kind] += [max(result.seconds) for result in ran[1:]]
            results[kind] = ran[-1].results
    gloo, static, dynamic, grpc = (median(step_s[kind]) for kind in _KINDS)
    num_bytes = sum(program.values[parameter].num_bytes for parameter in program.parameters)
    yield ratio_row(
        "training",
        f"{name}, {num_bytes / 1e6:,.1f} MB of parameters: step over gRPC / over shared memory, up to",
        _PUBLISHED_MOST,
        grpc / static,
        note=f"ms: static {static * 1e3:.1f}, dynamic {dynamic * 1e3:.1f}, gloo {gloo * 1e3:.1f}, gRPC {grpc * 1e3:.1f}",
    )
    expected = results[ChannelKind.GLOO]
    is_same = all(torch.equal(tensors[value], expected[value]) for tensors in results.values() for value in expected)
    yield fact_row(
        "training",
        f"{name}: loss and gradients over all channels",
        "the same",
        "equal to the bit" if is_same else "not equal",
        is_so=is_same and is_proved,
        band=EXACT,
        kind=Kind.OWN,
        note="all plans proved" if is_proved else "not proved",
    )


def slot_row() -> Row:
    """Returns the row of static memory that is used again, which is counted."""
    program, cluster = capture(*gpt(layers=2)), one_machine(2)
    plan = PLANNERS["megatron"](program, cluster, pp=2, microbatches=8)
    lanes = lanes_of(with_channels(plan, cluster, [ChannelKind.STATIC]))
    every = sum(lane.num_bytes for by_pair in lanes.values() for lane in by_pair.values())
    kept = sum(slot_bytes_of(lanes).values())
    return own_row(
        "section 3",
        "GPT in a pipeline, 8 microbatches: static memory, each message by itself / slots that are used again",
        f"{every / kept:.2f}",
        f"{every:,} and {kept:,} bytes; proved that no slot is filled while it is needed",
    )


def _sources_of(program: TensorProgram, module: nn.Module, inputs: Sequence[torch.Tensor]) -> Mapping[str, torch.Tensor]:
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    sources = dict(zip(program.inputs, inputs, strict=True))
    return sources | {name: held[name].detach() for name in program.sources if name in held}


def _stepped(ranks: Ranks, plan: Plan, sources: Mapping[str, torch.Tensor]) -> list[RunResult]:
    batch = {name: sources[name] for name in plan.sources if plan.values[name].kind is ValueKind.INPUT}
    ranks.load(plan, sources)
    results: list[RunResult] = []
    for number in range(3):
        ranks.begin_step(batch, None if number == 2 else ())
        results.append(ranks.end_step())
    return results


def _elsewhere() -> Iterator[Row]:
    for what, published, note in (
        ("beside an RPC that was made for RDMA", "up to 169 % better", "there is no RDMA here"),
        ("time to converge on a cluster with RDMA", "shorter", "here, steps learn the same over all channels, and are shorter"),
    ):
        yield not_here_row("abstract", what, published, note)
