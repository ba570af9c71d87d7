"""Tessel (HPCA'24): idle time of its five placements, by depth and by memory, search times, and pipelines on real ranks.

What is published is what the authors' own program finds: their settings, run with Z3 on one core. Where it ends without an
answer, and for bubbles by memory, the other figure is from a constraint model of ours, so that these rows are no reproduction.
Idle times are whole numbers and must be equal. Each is found twice here, by modulo scheduling and by the paper's enumeration,
which share no code.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from benchmarks.papers.bands import EXACT, ROUNDED_32, SIMULATED
from benchmarks.papers.rows import fact_row, not_here_row, number_row, own_row, points_of, sign_row
from benchmarks.papers.study import Progress, Study, unjudged
from benchmarks.papers.table import Kind, Line, Point, Row
from benchmarks.papers.tessel_search import candidates, enumerate_schedules, least_makespan
from benchmarks.papers.tessel_shapes import SHAPES
from dyorc.planner.cluster import Cluster, even_cluster
from dyorc.planner.planners.modulo.modulo_blocks import ModuloBlock, ModuloProblem
from dyorc.planner.planners.modulo.period_search import PeriodSearchLimits, shortest_period
from dyorc.planner.planners.modulo.warm_up import with_ends
from dyorc.planner.planners.tessel.plan import tessel
from dyorc.planner.program import TensorProgram, capture, evaluate
from dyorc.planner.runtime import RankOptions, Ranks
from dyorc.planner.runtime.shaping import links_of, paces_of
from dyorc.planner.simulate import simulate
from dyorc.planner.verify import verify

_ABOUT = """Idle time in each period ("bubbles") is counted in units: a forward pass takes 1 and a backward pass 3, on 4 devices.
The published figures are those of the authors' program with Z3, on one core of another machine; where it gave none, a
model of ours stands beside ours. Numbers of bubbles must be equal; search times show the order of magnitude. Ours are
found by CP-SAT on one core and, independently, by the paper's enumeration."""

_BY_DEPTH = {
    "V": (12, 4, 4, 0, 0),
    "X": (8, 2, 0, 0, 0),
    "K": (4, 1, 0, 0, 0),
    "M": (12, 5, 4, 2, 1, 0),
    "NN": (12, 5, 4, 2, 1, 0),
}
_ENDED_DEPTHS = {"NN": range(2, 6)}
"""Where the authors' program ended, if not from 2 on."""
_BY_MEMORY = {
    "V": {1: 12, 2: 4, 3: 4, 4: 0},
    "X": {2: 5, 3: 1, 4: 0},
    "K": {2: 2, 3: 0},
    "M": {1: 12, 2: 4, 3: 4, 4: 1, 5: 0},
    "NN": {1: 12, 2: 4, 3: 4, 4: 1, 5: 1, 6: 0},
}
_SETTINGS = {"V": (4, 4), "X": (3, 4), "K": (3, 6), "M": (6, 6), "NN": (6, 6)}
"""Of the paper's search: depth and memory."""
_SEARCH_S = {"V": 0.72, "X": 4.99, "K": 1.49, "M": 24.3, "NN": 112.8}
_INFERENCE = {"V": (4, 0.02), "K": (2, 0.04)}
_FAST_S = {"M": 1.34, "NN": 3.63}
_PERIODS = {"V": 4, "X": 8, "K": 6, "M": 6, "NN": 8}
_WHOLE = {
    "V": ((16, 20, 24), (0.03, 0.23, 0.52)),
    "K": ((10, 16, 22), (0.09, 0.89, 6.44)),
    "M": ((18, 24, 30), (0.05, 0.45, 3.93)),
}
_ABLATION_S = {
    ("X", 2): 3.2,
    ("X", 3): 4.7,
    ("X", 4): 12.2,
    ("X", 5): 65.5,
    ("M", 4): 12.7,
    ("M", 5): 23.5,
    ("M", 6): 25.0,
    ("NN", 4): 37.0,
    ("NN", 5): 103.5,
}


def reproduce(*, quick: bool = False, progress: Progress = lambda text: None) -> Study:
    """Returns the table, to be computed.

    Args:
        quick: Without what takes seconds for one number, and with one step of each pipeline.
        progress: Called with the name of each step.
    """
    ranks = _on_ranks(quick, progress)
    parts: dict[str, Iterable[Row | Line]] = {
        "searches": _searches(progress),
        "bubbles by N_R": _by_depth(quick, progress),
        "bubbles by memory": _by_memory(quick, progress),
        "whole problems": _whole_problems(progress),
        "32 microbatches": _many(quick, progress),
        "more devices": _larger(quick, progress),
        "real ranks": unjudged(ranks, "16 microbatches and three steps") if quick else ranks,
        "not here": _not_here(),
    }
    left_out = _SHORTENED if quick else ()
    return Study(name="tessel", title="Tessel (HPCA'24)", about=_ABOUT, parts=parts, is_quick=quick, left_out=left_out)


_SHORTENED = ("NN by enumeration and by memory", "32 microbatches of X, M and NN", "16 and 32 devices, and M and NN on 8")


_SLOWEST_S = {"V": 1.3, "K": 7.4}
"""Of all depths."""
_CANDIDATES = {"M": 126, "NN": 462}
"""Repetends that use all of six microbatches: C(K - 1, N_R - 1) for K blocks in a chain."""


def _exact(figure: str, what: str, published: object, ours: object, note: str = "", kind: Kind = Kind.PUBLISHED) -> Row:
    is_so = published == ours
    return fact_row(figure, what, _text(published), _text(ours), is_so=is_so, band=EXACT, kind=kind, note=note)


def _text(figure: object) -> str:
    if isinstance(figure, tuple):
        return ", ".join(map(str, figure))
    return ", ".join(f"{key}: {value}" for key, value in figure.items()) if isinstance(figure, dict) else str(figure)


def _faster(figure: str, what: str, published_s: float, ours_s: float, note: str = "", point: Point | None = None) -> Row:
    is_so = ours_s <= published_s
    return sign_row(figure, what, f"{published_s:g}", f"{ours_s:.3g}", is_so=is_so, note=note, point=point)


def _searches(progress: Progress) -> Iterator[Row]:
    for shape, (depth, units) in _SETTINGS.items():
        progress(f"search, {shape}")
        problem = SHAPES[shape]().with_capacity(units)
        result, other = shortest_period(problem, PeriodSearchLimits(depth=12, shorten=False)), enumerate_schedules(problem, depth)
        periods = (result.repetend.period, other.repetend.period)
        note = f"by enumeration {periods[1]}; bubbles 0, memory {units}"
        yield _exact("search", f"{shape}: period", _PERIODS[shape], periods[0] if len(set(periods)) == 1 else periods, note)
        times = f"Z3 there, CP-SAT here; our enumeration {other.took_s:.2g} s for {other.num_tried} candidates"
        yield _faster("search", f"{shape}: seconds of search, training", _SEARCH_S[shape], result.took_s, times)
        if shape in _FAST_S:
            what = f"{shape}: seconds of search, against the fast variant"
            yield _faster(
                "TPDS'24", what, _FAST_S[shape], result.took_s, "both without bubbles; ours is exact, theirs a heuristic"
            )
    for shape, published in _CANDIDATES.items():
        depth = _SETTINGS[shape][0]
        ours = sum(len(set(indices)) == depth for indices in candidates(SHAPES[shape](), depth))
        yield _exact("search", f"{shape}: candidates that use all of {depth} microbatches", published, ours, "C(K - 1, N_R - 1)")
    for shape, (depth, published_s) in _INFERENCE.items():
        result = shortest_period(SHAPES[shape](is_training=False), PeriodSearchLimits(depth=depth, shorten=False))
        yield _faster(
            "search", f"{shape}: seconds of search, inference", published_s, result.took_s, f"bubbles {result.repetend.bubbles}"
        )


def _by_depth(quick: bool, progress: Progress) -> Iterator[Row]:
    for shape, published in _BY_DEPTH.items():
        progress(f"bubbles by N_R, {shape}")
        problem, depths = SHAPES[shape]().with_capacity(16), range(1, 1 + len(published))
        results = [shortest_period(problem, PeriodSearchLimits(depth=depth, shorten=False)) for depth in depths]
        bubbles = tuple(result.repetend.bubbles for result in results)
        proof = "proved least" if all(result.is_optimal for result in results) else "not proved"
        ended = _ENDED_DEPTHS.get(shape, depths[1:])
        what = f"{shape}: bubbles for N_R = {ended[0]} to {ended[-1]}"
        yield _exact("ablation", what, _at(published, ended), _at(bubbles, ended), proof)
        others = [depth for depth in depths if depth not in ended]
        what = f"{shape}: bubbles for N_R = {' and '.join(map(str, others))}"
        note = f"{proof}; the authors' program gives no answer there, so that a constraint model of ours stands beside"
        yield _exact("ablation", what, _at(published, others), _at(bubbles, others), note, Kind.OWN)
        if not (quick and shape == "NN"):
            second = tuple(enumerate_schedules(problem, depth).repetend.bubbles for depth in depths)
            note = "beside modulo scheduling, which shares no code"
            yield _exact("ablation", f"{shape}: bubbles by N_R, by enumeration", bubbles, second, note, Kind.OWN)
        timed = [depth for depth in depths if (shape, depth) in _ABLATION_S]
        points = points_of(f"{shape}: seconds of search by N_R", timed)
        for depth in timed:
            what = f"{shape}: seconds of search, N_R {depth}"
            yield _faster("ablation", what, _ABLATION_S[shape, depth], results[depth - 1].took_s, point=points[depth])
        if published_s := _SLOWEST_S.get(shape):
            slowest_s = max(result.took_s for result in results)
            yield _faster("ablation", f"{shape}: seconds of search, the slowest N_R", published_s, slowest_s)
        if shape == "NN":
            note = "published: stopped after 120 s, with 1 bubble"
            yield _faster("ablation", "NN: seconds of search, N_R 6", 120.0, results[5].took_s, note)


def _at(bubbles: Sequence[int], depths: Sequence[int]) -> tuple[int, ...]:
    return tuple(bubbles[depth - 1] for depth in depths)


def _by_memory(quick: bool, progress: Progress) -> Iterator[Row]:
    for shape, published in _BY_MEMORY.items():
        if quick and shape == "NN":
            continue
        progress(f"bubbles by memory, {shape}")
        results = {
            units: shortest_period(SHAPES[shape]().with_capacity(units), PeriodSearchLimits(shorten=False)) for units in published
        }
        bubbles = {units: result.repetend.bubbles for units, result in results.items()}
        note = "proved least" if all(result.is_optimal for result in results.values()) else "not proved"
        what = f"{shape}: bubbles by memory, N_R up to 12"
        yield _exact("ablation", what, published, bubbles, f"{note}; beside a constraint model of ours", Kind.OWN)


def _whole_problems(progress: Progress) -> Iterator[Row]:
    for shape, (spans, seconds) in _WHOLE.items():
        progress(f"whole problems, {shape}")
        schedules = [least_makespan(SHAPES[shape]().with_capacity(16), num_parts) for num_parts in (1, 2, 3)]
        ours = tuple(schedule.timeline.makespan for schedule in schedules)
        yield _exact("time-optimal", f"{shape}: spans of 1, 2 and 3 microbatches", spans, ours)
        what, note = f"{shape}: what each further microbatch adds", "the period of the search"
        yield _exact("time-optimal", what, _PERIODS[shape], ours[2] - ours[1], note, Kind.OWN)
        times = " / ".join(f"{schedule.took_s:.2g}" for schedule in schedules)
        note = f"1, 2 and 3 microbatches: {times} s here, {' / '.join(map(str, seconds))} s there"
        yield _faster("time-optimal", f"{shape}: seconds for 3 microbatches", seconds[2], schedules[2].took_s, note)


def _many(quick: bool, progress: Progress) -> Iterator[Row]:
    for shape in ("V", "K") if quick else SHAPES:
        progress(f"32 microbatches, {shape}")
        repetend = shortest_period(SHAPES[shape]().with_capacity(16)).repetend
        timeline = with_ends(repetend).unroll(32)
        ideal = repetend.problem.load * 32
        if shape == "V":  # 1F1B is the best that V allows: (n - 1)(f + b) of idle time for each device
            note = f"our own formula; faults: {len(timeline.faults())}"
            yield _exact("1F1B", "V: span of 32 microbatches", ideal + 3 * 4, timeline.makespan, note, Kind.OWN)
            gpipe = f"memory {max(timeline.peaks.values())}; GPipe takes as long and needs 32"
            yield _exact("1F1B", "V: memory, microbatches", 4, max(timeline.peaks.values()), gpipe, Kind.OWN)
        else:
            rate = 1 - ideal / timeline.makespan
            yield own_row(
                "schedules", f"{shape}: span of 32 microbatches", f"{timeline.makespan}", f"at least {ideal}; idle {rate:.1%}"
            )
    split = shortest_period(_split_backward(4).with_capacity(4)).repetend
    timeline = with_ends(split).unroll(32)
    note = "backward passes of inputs and of weights apart (2 + 1), as in zero-bubble pipelines; memory of 1F1B"
    yield own_row("schedules", "V: span of 32 microbatches", f"{timeline.makespan}", note)


def _split_backward(num_devices: int) -> ModuloProblem:
    """V with the gradients of weights as blocks of their own, which nothing waits for."""
    blocks: list[ModuloBlock] = []
    for block in SHAPES["V"](num_devices).blocks:
        if block.memory > 0:
            blocks.append(block)
            continue
        blocks.append(replace(block, span=2, memory=0))
        blocks.append(replace(block, name=f"w{block.name[1:]}", span=1, after=(block.name,)))
    return ModuloProblem(tuple(blocks))


def _larger(quick: bool, progress: Progress) -> Iterator[Row]:
    more = () if quick else (("V", 16), ("V", 32), ("M", 8), ("M", 16), ("NN", 8), ("NN", 16))
    for shape, num_devices in (("V", 8), *more):
        progress(f"{num_devices} devices, {shape}")
        problem = SHAPES[shape](num_devices).with_capacity(2 * num_devices)
        result = shortest_period(problem, PeriodSearchLimits(depth=2 * num_devices, shorten=False))
        what = f"{shape} on {num_devices} devices: bubbles"
        note = f"{result.took_s:.2g} s; none is the least there can be; theirs were searched up to 8 devices"
        yield _exact("scale", what, 0, result.repetend.bubbles, note, Kind.OWN)


# -- on real ranks -------------------------------------------------------------------------------------------------------------

_NUM_RANKS = 4


class _Words(nn.Module):
    """A table, a layer for each rank, and an output layer: few operations, so that a busy machine emulates four devices well."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.table = nn.Embedding(64, width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(_NUM_RANKS)])
        self.head = nn.Linear(width, 64, bias=False)

    def forward(self, words: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.table(words)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return nn.functional.cross_entropy(self.head(x), targets)


def _on_ranks(quick: bool, progress: Progress) -> Iterator[Row]:
    torch.manual_seed(0)
    module, words = _Words(), torch.randint(0, 64, (2, 16 * (8 if quick else 16)))
    inputs = (words[0], words[1])
    program = capture(module, inputs)
    sources = {name: tensor.detach() for name, tensor in [*module.named_parameters(), *module.named_buffers()]}
    sources = {name: sources[name] for name in program.sources if name in sources} | dict(
        zip(program.inputs, inputs, strict=True)
    )
    expected = float(evaluate(program, sources)[program.loss])
    cluster = even_cluster(_NUM_RANKS, flops_per_s=1e6 if quick else 8e5, bytes_per_s=1e7, latency_s=1e-4)
    options = RankOptions(num_ranks=_NUM_RANKS, device="cpu", links=links_of(cluster))
    with Ranks(options) as ranks:
        for placement in ("v", "m"):
            progress(f"4 real ranks, {placement.upper()}")
            yield from _ran(ranks, program, sources, cluster, placement, expected, 1 if quick else 3)


def _ran(
    ranks: Ranks,
    program: TensorProgram,
    sources: Mapping[str, torch.Tensor],
    cluster: Cluster,
    placement: str,
    expected: float,
    num_steps: int,
) -> Iterator[Row]:
    plan = tessel(program, cluster, placements=[placement], microbatches=8 if num_steps == 1 else 16)
    predicted_s = simulate(plan, program, cluster).total_s
    proof = "proved" if verify(program, plan).is_proved else "not proved"
    ranks.load(plan, sources, overlap=True, paces=list(paces_of(plan, program, cluster)))
    seconds: list[float] = []
    difference = 0.0
    for _ in range(num_steps + 1):
        ranks.begin_step({name: sources[name] for name in program.inputs}, [program.loss])
        ran = ranks.end_step()
        seconds.append(max(ran.seconds))
        difference = max(difference, abs(float(ran.results[program.loss]) - expected))
    measured_s = min(seconds[1:])
    what = f"{placement.upper()} on 4 ranks, {plan.provenance.notes['microbatches']} microbatches: seconds of a step"
    note = f"gloo processes whose devices and links are emulated, beside our simulator; the plan is {proof}"
    yield number_row("real ranks", what, predicted_s, measured_s, band=SIMULATED, kind=Kind.OWN, note=note)
    is_so, text = difference < 1e-5, f"{difference:.1g}"
    what = f"{placement.upper()} on 4 ranks: loss, difference from one device"
    yield fact_row("real ranks", what, "0", text, is_so=is_so, band=ROUNDED_32, kind=Kind.OWN, note="float32")


def _not_here() -> Sequence[Row]:
    models = (
        "GPT with a vocabulary of 1 M, mT5 of 1.5 M, Flava; 4 to 32 V100s; against tensor parallelism, 1F1B, 1F1B+ and Chimera"
    )
    claims = {"training is up to 5.5 times as fast": "5.5", "inference takes up to 38 % less time": "-38 %"}
    return [not_here_row("abstract", what, published, f"{models}: needs GPUs") for what, published in claims.items()]
