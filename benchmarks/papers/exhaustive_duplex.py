"""The optimum of two interleaved microbatches on programs of few nodes, which HiDup's search is held against.

It tries every program that HiDup's search can choose from, and times each by equations (4) and (5) of HiDup (SoCC'22) as they are
printed; it shares neither states nor dominance with that search.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from dyorc.planner.planners.hidup.items import Items, NodeItem, ReductionItem, RegroupItem
from dyorc.planner.planners.hidup.microbatch_costs import Conversion, MicrobatchCosts, TimedTensor
from dyorc.planner.program import (
    PARTIAL,
    REPLICATE,
    Placement,
    Shard,
    Strategy,
)


class StageTimes(NamedTuple):
    """Seconds of one stage: what is communicated once before it, for each microbatch, and once after both; one microbatch's
    computation; and the reductions that it leaves to the next stage.
    """

    once_s: float = 0.0
    both_s: float = 0.0
    late_s: float = 0.0
    comp_s: float = 0.0
    leaves_s: float = 0.0


@dataclass(frozen=True)
class _Prefix:
    """What was chosen so far: in which placements each tensor exists, in which stage it was made, and the stages."""

    forms: Mapping[TimedTensor, tuple[Placement, ...]]
    made_in: Mapping[TimedTensor, int]
    stages: tuple[StageTimes, ...]

    def plus(self, more: StageTimes) -> "_Prefix":
        last = StageTimes(*(a + b for a, b in zip(self.stages[-1], more, strict=True)))
        return replace(self, stages=(*self.stages[:-1], last))


def duplex_s(stages: Sequence[StageTimes]) -> float:
    """The time of a program's stages by equations (4) and (5), with what is communicated once in one slot alone."""
    psi_s, phi_s, left_s = 0.0, 0.0, 0.0
    for once_s, both_s, late_s, comp_s, leaves_s in stages:
        psi_s += phi_s + max(-phi_s, once_s + both_s) + max(both_s + late_s + left_s, comp_s) + comp_s
        phi_s, left_s = -comp_s, leaves_s
    return psi_s + left_s


def exhaustive_duplex_s(items: Items, costs: MicrobatchCosts) -> float:
    """Returns the least time of all programs of two interleaved microbatches in the items' order.

    What is slower already than a whole program that was found is not continued: time never falls when a program grows.
    """
    least_s = float("inf")

    def go(index: int, prefix: _Prefix) -> None:
        nonlocal least_s
        now_s = duplex_s(prefix.stages)
        if now_s >= least_s:
            return
        if index == len(items.items):
            least_s = now_s
            return
        for after in sorted(_continuations(items, costs, index, prefix), key=lambda each: duplex_s(each.stages)):
            go(index + 1, after)

    go(0, _Prefix({}, {}, (StageTimes(),)))
    return least_s


def _continuations(items: Items, costs: MicrobatchCosts, index: int, prefix: _Prefix) -> Iterator[_Prefix]:
    match items.items[index]:
        case RegroupItem() as item:
            forms = prefix.forms.get(item.source, (REPLICATE,))
            prefix = replace(prefix, forms={**prefix.forms, item.source: forms, item.target: forms})
            must_open = item.is_waiting and prefix.made_in.get(item.source, -1) == len(prefix.stages) - 1
            yield _opened(prefix) if must_open else prefix
        case ReductionItem() as item:
            owner = prefix.forms.get(item.owner, (REPLICATE,))[0]
            for conversion in _conversions(costs, item.target, prefix.forms[item.source], owner):
                yield prefix.plus(StageTimes(leaves_s=conversion.cost_s if conversion else 0.0))
        case NodeItem() as item:
            for strategy in item.strategies:
                yield from _runs(items, costs, item, strategy, prefix)


def _runs(items: Items, costs: MicrobatchCosts, item: NodeItem, strategy: Strategy, prefix: _Prefix) -> Iterator[_Prefix]:
    wanted = dict(zip(item.inputs, strategy.inputs, strict=True))
    new = [tensor for tensor in wanted if tensor in items.sources and tensor not in prefix.forms]
    shape = costs.program.values
    choices = [
        [wanted[t]]
        if t not in items.owners or isinstance(wanted[t], Shard)
        else [REPLICATE]
        if wanted[t] == PARTIAL
        else [
            REPLICATE,
            *(Shard(d) for d in range(len(shape[t.value].shape)) if costs.halves.axes.extent_of(t.value, d) > 1),
        ]
        for t in new
    ]
    for begin in product(*choices):
        forms = {**prefix.forms, **{tensor: (placement,) for tensor, placement in zip(new, begin, strict=True)}}
        is_free = {t for t in wanted if t in items.sources and t not in items.owners}
        ways = [[None] if t in is_free else list(_conversions(costs, t, forms[t], placement)) for t, placement in wanted.items()]
        for conversions in product(*ways):
            for tensor in is_free:
                forms[tensor] = (*forms[tensor], wanted[tensor])
            yield from _run(items, costs, item, strategy, replace(prefix, forms=forms), [c for c in conversions if c])


def _run(
    items: Items, costs: MicrobatchCosts, item: NodeItem, strategy: Strategy, prefix: _Prefix, conversions: Sequence[Conversion]
) -> Iterator[_Prefix]:
    now = len(prefix.stages) - 1
    must_open = any(prefix.made_in.get(conversion.tensor, -1) == now for conversion in conversions)
    may_open = bool(conversions) or prefix.stages[-1].leaves_s > 0  # otherwise the next communication only hides behind less
    for begins in (_opened(prefix),) if must_open else (prefix, _opened(prefix)) if may_open else (prefix,):
        after = begins.plus(StageTimes(comp_s=costs.compute_s(item.node, strategy)))
        forms, made_in = dict(after.forms), dict(after.made_in)
        for conversion in conversions:
            tensor = conversion.tensor
            forms[tensor] = (*forms[tensor], conversion.after)
            if not tensor.is_once:
                after = after.plus(StageTimes(both_s=conversion.cost_s))
            elif tensor in items.sources:
                after = after.plus(StageTimes(once_s=conversion.cost_s))
            else:
                after = after.plus(StageTimes(late_s=conversion.cost_s))
        for output, placement in zip(item.outputs, strategy.outputs, strict=True):
            if output:
                forms[output], made_in[output] = (placement,), len(after.stages) - 1
        yield replace(after, forms=forms, made_in=made_in)


def _opened(prefix: _Prefix) -> _Prefix:
    return replace(prefix, stages=(*prefix.stages, StageTimes()))


def _conversions(
    costs: MicrobatchCosts, tensor: TimedTensor, forms: Sequence[Placement], wanted: Placement
) -> Iterator[Conversion | None]:
    if wanted in forms or REPLICATE in forms:
        yield None
        return
    for before in forms:
        conversion = costs.conversion(tensor, before, wanted)
        if conversion:
            yield conversion
