"""Measures the cluster that ranks on this machine make, by running small plans on real ranks.

What is measured is what a plan's steps cost in the runtime, so predictions and runs mean the same: chains of products and of
additions on all ranks at the same time, each collective in each algorithm, transfers, and both at once: ranks that compute and
communicate share cores and a process, so neither goes on as if the other were not there. Costs are lines fitted to medians.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from statistics import median, median_high
from typing import Protocol

import torch

from dyorc.planner.cluster import (
    ChannelCost,
    Cluster,
    CollectiveCost,
    Contention,
    CostLine,
    Device,
    Link,
    driving_bytes,
    fitted_line,
)
from dyorc.planner.plan import Algorithm, ChannelKind, CollectiveKind, Edge, MeshAxis, Plan, PlanBuilder, Provenance, Transfer
from dyorc.planner.program import (
    PARTIAL,
    REPLICATE,
    Argument,
    Node,
    Placement,
    Shard,
    Strategy,
    TensorProgram,
    Value,
    ValueKind,
    ValueRef,
)
from dyorc.planner.runtime import RankOptions, Ranks

Progress = Callable[[str, int, int], None]
"""Called before each measurement with what it is, how many are done, and how many there are."""


class Stopwatch(Protocol):
    """Runs plans."""

    def __call__(self, plan: Plan, num_repeats: int, *, overlap: bool = False) -> Sequence[tuple[float, ...]]:
        """Runs a plan so many times, communicating during computation if they may overlap. Returns for each time the seconds that
        each rank took.
        """
        ...


_WIDTH = 4  # bytes of a float32
_MIN_S_PER_BYTE = 1e-13
_VIEW = "aten.view.default"
_NUM_VIEWS = 8
"""How many times more views than products make a chain."""
_OTHER = ValueRef("w")
_NUM_AT_ONCE = 3
"""How many times more messages than a chain has are summed during computation."""
_SHORTER, _LONGER = 0.5, 2.5
"""How long ranks compute during communication, as fractions of the time that communication takes alone."""
_MAX_LENGTH = 1_000
"""Of a chain of products during communication. Ranks that communicate for longer mostly wait, and disturb no other rank."""
_MAX_IN_THE_WAY = 0.9
"""Of the shorter of two things, how much may come on top of the longer: at 1, they take turns, and nothing says who waits."""
_KINDS: Sequence[tuple[CollectiveKind, Sequence[Algorithm], Placement, Placement]] = (
    (CollectiveKind.ALL_REDUCE, (Algorithm.PADDED, Algorithm.RING), PARTIAL, REPLICATE),
    (CollectiveKind.ALL_GATHER, tuple(Algorithm), Shard(0), REPLICATE),
    (CollectiveKind.REDUCE_SCATTER, tuple(Algorithm), PARTIAL, Shard(0)),
    (CollectiveKind.ALL_TO_ALL, (Algorithm.PADDED, Algorithm.RING), Shard(0), Shard(1)),
)
_COMBINATIONS = [(kind, algorithm, before, after) for kind, algorithms, before, after in _KINDS for algorithm in algorithms]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured.

    Attributes:
        num_repeats: How often each plan runs; the median counts.
        chain: How many products, additions or collectives one plan has.
        matrices: Rows and columns of the square matrices that are multiplied.
        vectors: Bytes of the tensors that are added.
        messages: Bytes of the tensors that are communicated.
    """

    num_repeats: int = 5
    chain: int = 8
    matrices: Sequence[int] = (32, 128, 384)
    vectors: Sequence[int] = (1 << 12, 1 << 18, 1 << 22)
    messages: Sequence[int] = field(default=(1 << 12, 1 << 16, 1 << 19, 1 << 22))


QUICK = Effort(num_repeats=3, chain=4, matrices=(32, 192), vectors=(1 << 12, 1 << 20), messages=(1 << 12, 1 << 18))
"""Takes seconds on two ranks; its figures are rough."""


def measure_cluster(options: RankOptions | int, *, effort: Effort | None = None, progress: Progress | None = None) -> Cluster:
    """Measures what ranks on this machine cost. `dyorc.planner.cluster.write_cluster` keeps it.

    Args:
        options: How many ranks, or how they run: with slow ranks or links, these are measured.
        effort: How much is measured.
        progress: Called before each measurement.

    Returns:
        One machine with a device for each rank; or a machine for each rank, if links between them are made slower.

    Raises:
        PlanRunError: A rank failed.
    """
    if isinstance(options, int):
        options = RankOptions(num_ranks=options)
    with Ranks(options) as ranks:
        return measured_cluster(partial(_timed, ranks), options, effort or Effort(), progress)


def measured_cluster(stopwatch: Stopwatch, options: RankOptions, effort: Effort, progress: Progress | None = None) -> Cluster:
    """Returns the cluster on which plans take as long as a stopwatch says."""
    return _Measurement(stopwatch, options, effort, progress).cluster()


def _timed(ranks: Ranks, plan: Plan, num_repeats: int, *, overlap: bool = False) -> list[tuple[float, ...]]:
    """Runs a plan on real ranks, and once before that does not count."""
    sources = {name: torch.zeros(plan.values[name].shape) for name in plan.sources}
    ranks.load(plan, sources, overlap=overlap)
    seconds: list[tuple[float, ...]] = []
    for _ in range(num_repeats + 1):
        ranks.begin_step({}, answer=())
        seconds.append(ranks.end_step().seconds)
    return seconds[1:]


class _Measurement:
    """One measurement of plans that a stopwatch runs."""

    def __init__(self, stopwatch: Stopwatch, options: RankOptions, effort: Effort, progress: Progress | None) -> None:
        self._stopwatch = stopwatch
        self._num = options.num_ranks
        self._is_shaped = bool(options.links)
        self._effort = effort
        self._progress = progress
        pairs = list(combinations(range(self._num), 2))
        self._pairs = pairs if self._is_shaped else pairs[:1]
        self._num_done = 0
        self._kinds = [kind for kind in ChannelKind if kind is not ChannelKind.GLOO and self._num > 1 and not self._is_shaped]
        self._num_all = 3 + len(self._pairs) + (len(_COMBINATIONS) + 1 if self._num > 1 else 0) + len(self._kinds)

    def cluster(self) -> Cluster:
        machines = [f"rank-{rank}" if self._is_shaped else "here" for rank in range(self._num)]
        products = self._compute_lines("aten.mm.default", self._effort.matrices, lambda size: ((size, size), 2.0 * size**3))
        additions = self._compute_lines(
            "aten.add.Tensor", self._effort.vectors, lambda size: ((size // _WIDTH,), 3.0 * (size // _WIDTH) * _WIDTH)
        )
        views_s = self._views_s()
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // self._num
        devices = tuple(
            Device(
                name="rank",
                machine=machine,
                flops_per_s=_rate(product),
                memory_bytes=memory,
                memory_bytes_per_s=_rate(addition),
                overhead_s=addition.latency_s,
                view_s=view_s,
            )
            for machine, product, addition, view_s in zip(machines, products, additions, views_s, strict=True)
        )
        links = tuple(self._link(*pair, machines) for pair in self._pairs)
        collectives = tuple(self._collective(*each) for each in _COMBINATIONS) if self._num > 1 else ()
        return Cluster(
            name="measured",
            devices=devices,
            links=links,
            collectives=collectives,
            source=f"measured on {os.uname().nodename} with {self._num} ranks",
            channels=tuple(map(self._channel, self._kinds)),
            contention=self._contention() if self._num > 1 else None,
        )

    def _compute_lines(
        self, op: str, sizes: Sequence[int], shape_and_cost: Callable[[int], tuple[tuple[int, ...], float]]
    ) -> list[CostLine]:
        """For each rank, what one operation takes, by its flops or bytes."""
        self._tell(op)
        points: list[list[tuple[float, float]]] = [[] for _ in range(self._num)]
        for size in sizes:
            shape, cost = shape_and_cost(size)
            plan = _chain(op, shape, self._effort.chain, self._num)
            for rank, seconds in enumerate(zip(*self._seconds(plan), strict=True)):
                points[rank].append((cost, median(seconds) / self._effort.chain))
        return [_measured(each) for each in points]

    def _views_s(self) -> list[float]:
        """For each rank, what it takes to look at a tensor otherwise."""
        self._tell(_VIEW)
        size, length = min(self._effort.vectors) // _WIDTH, _NUM_VIEWS * self._effort.chain
        columns = zip(*self._seconds(_chain(_VIEW, (size,), length, self._num, (size,))), strict=True)
        return [_rounded(median(seconds) / length) for seconds in columns]

    def _link(self, source: int, target: int, machines: Sequence[str]) -> Link:
        self._tell(f"transfer {source} -> {target}")
        line = self._message_line(source, target, ChannelKind.GLOO)
        return Link(source=machines[source], target=machines[target], bytes_per_s=_rate(line), latency_s=line.latency_s)

    def _channel(self, kind: ChannelKind) -> ChannelCost:
        self._tell(f"transfer by {kind}")
        line = self._message_line(0, 1, kind)
        return ChannelCost(kind=kind, bytes_per_s=_rate(line), latency_s=line.latency_s)

    def _message_line(self, source: int, target: int, kind: ChannelKind) -> CostLine:
        points: list[tuple[float, float]] = []
        for size in self._effort.messages:
            plan = transfers(source, target, size, self._effort.chain, kind)
            # the receiver is done last
            points.append((size, median(seconds[target] for seconds in self._seconds(plan)) / self._effort.chain))
        return _measured(points)

    def _collective(self, kind: CollectiveKind, algorithm: Algorithm, before: Placement, after: Placement) -> CollectiveCost:
        self._tell(f"{kind} {algorithm}")
        points: list[tuple[float, float]] = []
        for size in self._effort.messages:
            rows = max(size // (_WIDTH * self._num), 1)
            whole = rows * self._num * self._num * _WIDTH
            plan = _collectives(rows * self._num, self._num, (before, after, algorithm), self._effort.chain)
            pieces = [whole if kind is CollectiveKind.ALL_REDUCE else whole // self._num] * self._num
            # the rank that began last did not wait
            seconds = median(min(each) for each in self._seconds(plan)) / self._effort.chain
            points.append((driving_bytes(kind, algorithm, pieces), seconds))
        machines = (1,) * self._num if self._is_shaped else (self._num,)
        return CollectiveCost(kind=kind, algorithm=algorithm, lines=(_measured(points),), devices_by_machine=machines)

    def _contention(self) -> Contention | None:
        """Has all ranks do both at once, with short messages and with longer ones."""
        self._tell("both at once")
        messages = self._effort.messages
        measurements = [self._contention_with(num_bytes) for num_bytes in (min(messages), median_high(messages))]
        short, long = measurements
        return contention_of_messages(short, long) if short and long else None

    def _contention_with(self, num_bytes: int) -> tuple[float, Contention] | None:
        """Has all ranks communicate, compute for a shorter and for a longer time, and do both at once. Returns what one message
        takes by itself, and what they do to each other; None if that cannot be measured.
        """
        num, rows = _NUM_AT_ONCE * self._effort.chain, num_bytes // (_WIDTH * self._num)

        def seconds(length: int, size: int, num_messages: int) -> float:
            plan = _at_once(length, size, num_messages, rows, self._num)
            return median(max(each) for each in self._stopwatch(plan, self._effort.num_repeats, overlap=True))

        communicating_s = seconds(0, 0, num)
        for size in sorted(self._effort.matrices)[len(self._effort.matrices) // 2 :]:
            one_s = seconds(num, size, 0) / num
            short, long = (max(round(part * communicating_s / one_s), 1) for part in (_SHORTER, _LONGER))
            if long <= _MAX_LENGTH:
                computing_s = seconds(short, size, 0), seconds(long, size, 0)
                both_s = seconds(short, size, num), seconds(long, size, num)
                return communicating_s / num, contention_of(communicating_s, computing_s, both_s)
        return None

    def _seconds(self, plan: Plan) -> Sequence[tuple[float, ...]]:
        return self._stopwatch(plan, self._effort.num_repeats)

    def _tell(self, text: str) -> None:
        if self._progress:
            self._progress(text, self._num_done, self._num_all)
        self._num_done += 1


def contention_of(communicating_s: float, computing_s: tuple[float, float], both_s: tuple[float, float]) -> Contention:
    """Returns how computation and communication slow each other.

    Say that computation takes x times as long while its rank communicates, and communication y times as long meanwhile. Where
    computing is over first, after x C, it has held communication (M by itself) up by x C (1 - 1 / y); where communicating is over
    first, after y M, it has held computing up by y M (1 - 1 / x). Both are measured, and give x and y.

    Args:
        communicating_s: What communicating takes by itself.
        computing_s: What a shorter and a longer computation take by themselves.
        both_s: What communicating and either of them take at once.
    """
    held_up = both_s[0] - communicating_s, both_s[1] - computing_s[1]
    p, q = (min(max(up, 0.0) / by, _MAX_IN_THE_WAY) for up, by in zip(held_up, (computing_s[0], communicating_s), strict=True))
    return Contention(computing=_rounded(1 + q * (1 - p) / (1 - q)), communicating=_rounded(1 + p * (1 - q) / (1 - p)))


def contention_of_messages(short: tuple[float, Contention], long: tuple[float, Contention]) -> Contention:
    """Returns how computation and communication slow each other, for messages of any length: one of m seconds takes y m + w
    during computation, y + w / m times as long, which two messages tell.

    Args:
        short: What a short message takes by itself, and what was found with such messages.
        long: The same of a longer one.
    """
    (short_s, short_contention), (long_s, long_contention) = short, long
    if not short_s < long_s:
        return long_contention
    waiting_s = max(short_contention.communicating - long_contention.communicating, 0.0) / (1 / short_s - 1 / long_s)
    waiting_s = min(waiting_s, (long_contention.communicating - 1) * long_s)
    return Contention(
        computing=long_contention.computing,
        communicating=_rounded(long_contention.communicating - waiting_s / long_s),
        waiting_s=_rounded(waiting_s),
    )


def _measured(points: Sequence[tuple[float, float]]) -> CostLine:
    """The line through measured points, to as many digits as are worth keeping. It rises, though noise may make a larger tensor
    look as fast as a small one.
    """
    line = fitted_line(points)
    return CostLine(_rounded(line.latency_s), 1 / _rate(CostLine(0.0, max(line.s_per_byte, _MIN_S_PER_BYTE))))


def _rate(line: CostLine) -> float:
    return _rounded(1 / line.s_per_byte)


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


def _program(values: dict[str, tuple[int, ...]], nodes: Sequence[Node], results: Sequence[str]) -> TensorProgram:
    outputs = {name for node in nodes for name in node.outputs}
    made = {
        name: Value(
            name=name,
            shape=shape,
            dtype="float32",
            kind=ValueKind.ACTIVATION if name in outputs else ValueKind.PARAMETER,
        )
        for name, shape in values.items()
    }
    gradients = {name: name for name in results[1:]}
    return TensorProgram(name="measured", values=made, nodes=tuple(nodes), inputs=(), loss=results[0], gradients=gradients)


def _operations(op: str, length: int, other: Argument = _OTHER) -> list[Node]:
    """Each reads what the one before has made, and something else."""
    return [Node(name=f"n{i}", op=op, arguments=(ValueRef(f"y{i}"), other), outputs=(f"y{i + 1}",)) for i in range(length)]


def _values_of_chain(shape: tuple[int, ...], length: int) -> dict[str, tuple[int, ...]]:
    return {"w": shape, **{f"y{i}": shape for i in range(length + 1)}}


def _compute(builder: PlanBuilder, sources: Sequence[str], nodes: Sequence[Node]) -> None:
    """Has each rank compute a chain by itself."""
    for name in sources:
        builder.source(name, "ranks", [REPLICATE])
    for node in nodes:
        builder.apply(node, "ranks", [Strategy((REPLICATE,) * len(node.inputs), (REPLICATE,))])
    builder.result(f"y{len(nodes)}", "ranks", [REPLICATE])


def _chain(op: str, shape: tuple[int, ...], length: int, num_ranks: int, other: Argument = _OTHER) -> Plan:
    """Each rank computes by itself."""
    nodes = _operations(op, length, other)
    program = _program(_values_of_chain(shape, length), nodes, [f"y{length}"])
    builder = PlanBuilder(program)
    builder.mesh("ranks", [MeshAxis(name="rank", size=num_ranks)], range(num_ranks))
    _compute(builder, program.sources, nodes)
    return builder.build(Provenance(planner="measure"))


def _at_once(length: int, size: int, num_messages: int, rows: int, num_ranks: int) -> Plan:
    """Ranks sum up messages, and compute a chain of products meanwhile; either may be nothing."""
    nodes = _operations("aten.mm.default", length)
    messages = dict(_sources(num_messages, (rows, num_ranks)))
    values = _values_of_chain((size, size), length) if length else {}
    builder = PlanBuilder(_program(values | messages, nodes, [*([f"y{length}"] if length else []), *messages]))
    builder.mesh("ranks", [MeshAxis(name="rank", size=num_ranks)], range(num_ranks))
    for name in messages:
        builder.collective(builder.source(name, "ranks", [PARTIAL]), "rank", REPLICATE, None, Algorithm.PADDED)
        builder.result(name, "ranks", [REPLICATE])
    if length:
        _compute(builder, ("w", "y0"), nodes)
    return builder.build(Provenance(planner="measure"))


def _sources(num: int, shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    return ((f"x{index}", shape) for index in range(num))


def _collectives(rows: int, num_ranks: int, change: tuple[Placement, Placement, Algorithm], num: int) -> Plan:
    before, after, algorithm = change
    values = dict(_sources(num, (rows, num_ranks)))
    builder = PlanBuilder(_program(values, (), list(values)))
    builder.mesh("ranks", [MeshAxis(name="rank", size=num_ranks)], range(num_ranks))
    for name in values:
        source = builder.source(name, "ranks", [before])
        builder.collective(source, "rank", after, None, algorithm)
        builder.result(name, "ranks", [after])
    return builder.build(Provenance(planner="measure"))


def transfers(source: int, target: int, num_bytes: int, num: int, kind: ChannelKind = ChannelKind.GLOO) -> Plan:
    """Returns a plan that sends messages from one rank to another, one after the other.

    Args:
        source: The rank that sends.
        target: The one that receives.
        num_bytes: Of each message.
        num: How many.
        kind: How they go. Unless they go by gloo, they are not kept: what stays is copied out of shared memory.
    """
    values = dict(_sources(num, (num_bytes // _WIDTH,)))
    builder = PlanBuilder(_program(values, (), list(values)))
    for name, rank in (("source", source), ("target", target)):
        builder.mesh(name, [MeshAxis(name="rank", size=1)], [rank])
    for name in values:
        builder.source(name, "source", [REPLICATE])
        builder.result(name, "target", [REPLICATE])
    plan = builder.build(Provenance(planner="measure"))
    if kind is ChannelKind.GLOO:
        return plan
    steps = [
        replace(step, edges=(Edge(source=source, target=target, kind=kind, slot=number),)) if isinstance(step, Transfer) else step
        for number, step in enumerate(plan.steps)
    ]
    return replace(plan, steps=tuple(steps), results={})
