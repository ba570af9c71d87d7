"""CrossoverScheduler (arXiv 2103.07974): jobs that share their devices, scheduled and on real ranks, against the formula.

Of the paper only the abstract is published as text; the formula follows from its idea. With C seconds of computation and M of
communication in a step, two jobs one after the other take 2 (C + M), and in turns max(2 C, 2 M, C + M).
"""

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import median

import torch
from torch import nn

from benchmarks.papers.bands import CLOSE, EXACT, MODELLED
from benchmarks.papers.rows import fact_row, not_here_row, number_row, own_row, points_of, ratio_row
from benchmarks.papers.study import Progress, Study, unjudged
from benchmarks.papers.table import Kind, Line, Row
from dyorc.planner.cluster import Cluster, even_cluster
from dyorc.planner.plan import Plan
from dyorc.planner.plan.rewrites import communicate_early
from dyorc.planner.planners.baselines.data_parallel import dp_even
from dyorc.planner.planners.crossover.merge import MergeCandidate, Resource, merge_jobs, phases_of, schedule_jobs
from dyorc.planner.program import TensorProgram, capture
from dyorc.planner.runtime import RankOptions, Ranks, Training
from dyorc.planner.runtime.shaping import links_of, paces_of
from dyorc.planner.runtime.shared_devices import DeviceSharing
from dyorc.planner.runtime.side_by_side import JobRun, Sharing, TrainingJob, run_side_by_side
from dyorc.planner.simulate import simulate

_ABOUT = """Two jobs train on the same two ranks; C is the computation and M the communication of a step. Speed-ups are over one
job after the other. Of the paper only the abstract is published as text: beside ours is our own formula that follows from it,
min(1 + M/C, 1 + C/M), so that no row is equal to a published figure. On real ranks, devices and links are emulated in real
time: operations take as long as on a device of the given speed, a link lets so many bytes pass in a second, and what two jobs
use at once has half its speed for each. Medians of steps; the ways took turns, on a machine that had other work, too: what that
adds to each message counts as M."""

_RATIOS = (Fraction(1, 20), Fraction(1, 10), Fraction(1, 5), Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(2))
_LEAST_COMPARED = Fraction(1, 5)
"""Below that there is little to gain, and steps take long: without the other ways."""
_NUM_RANKS = 2
_LEARNING_RATE = 0.05


def reproduce(*, quick: bool = False, progress: Progress = lambda text: None) -> Study:
    """Returns the table, to be computed.

    Args:
        quick: With two ratios and shorter steps, each way once.
        progress: Called with the name of each step.
    """
    ranks = _on_ranks(quick, progress)
    parts: dict[str, Iterable[Row | Line]] = {
        "formulas": formulas(),
        "real ranks": unjudged(ranks, "steps of three times the length, three rounds") if quick else ranks,
        "not here": _not_here(),
    }
    left_out = ("real ranks at five of seven ratios, and their trend",) if quick else ()
    title = "CrossoverScheduler (arXiv 2103.07974)"
    return Study(name="crossover", title=title, about=_ABOUT, parts=parts, is_quick=quick, left_out=left_out)


def formulas() -> Iterator[Row]:
    """What the modulo scheduler finds, in whole units of time: equal means exactly equal."""
    for num_jobs in (2, 3):
        for ratio in _RATIOS if num_jobs == 2 else (Fraction(1, 5), Fraction(1), Fraction(2)):
            compute, network = ratio.denominator, ratio.numerator
            expected = Fraction(num_jobs * (compute + network), max(num_jobs * compute, num_jobs * network, compute + network))
            what = f"M/C {float(ratio):g}: {num_jobs} jobs in turns"
            yield _scheduled("formula", what, [(compute, network)] * num_jobs, expected)
    unequal = {"3 C, 1 M and 1 C, 3 M": ((3, 1), (1, 3)), "8 C, 8 M and 1 C, 1 M": ((8, 8), (1, 1))}
    for what, jobs in unequal.items():  # the busiest of devices, network and jobs decides
        busiest = max(sum(job[0] for job in jobs), sum(job[1] for job in jobs), *(sum(job) for job in jobs))
        yield _scheduled("formula, unequal jobs", what, jobs, Fraction(sum(sum(job) for job in jobs), busiest))


def _scheduled(figure: str, what: str, jobs: Sequence[tuple[int, int]], expected: Fraction) -> Row:
    schedule = schedule_jobs([[(Resource.DEVICES, compute), (Resource.NETWORK, network)] for compute, network in jobs])
    ours = Fraction(sum(map(sum, jobs)), schedule.repetend.period)
    is_same = ours == expected and not schedule.repetend.unroll(5).faults()
    note = f"a period of {schedule.repetend.period} for work of {sum(map(sum, jobs))}; "
    note += "no period is shorter" if schedule.is_optimal else "not proved to be the shortest"
    return fact_row(figure, what, f"{expected!s}", f"{ours!s}", is_so=is_same, band=EXACT, kind=Kind.OWN, note=note)


# -- on real ranks -------------------------------------------------------------------------------------------------------------


class _Layers(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in range(3)])

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return ((x - target) ** 2).mean()


@dataclass(frozen=True, kw_only=True)
class _Work:
    """Two jobs of one shape, with other parameters and data."""

    program: TensorProgram
    plan: Plan
    cluster: Cluster
    sources: Sequence[Mapping[str, torch.Tensor]]
    compute_s: float
    network_s: float

    def at(self, ratio: Fraction) -> "_Work":
        """The same on devices so fast that computation takes as long as the ratio wants; links stay as they are."""
        compute_s = self.network_s / float(ratio)
        speed = self.cluster.devices[0].flops_per_s * self.compute_s / compute_s
        cluster = _cluster(speed, self.cluster.link_between(0, 1).bytes_per_s)
        return replace(self, cluster=cluster, compute_s=compute_s)

    def job(self, number: int, steps: int, *, overlap: bool = False, unrest: float = 0.0, late_s: float = 0.0) -> TrainingJob:
        """One of the jobs.

        Args:
            number: Which one.
            steps: How many it trains.
            overlap: With its communication during its own computation, as early as possible.
            unrest: By how much a rank may be slower at a step of the plan than the device, at random.
            late_s: When it begins.
        """
        program, draw = self.program, random.Random(number)
        plan = communicate_early(self.plan) if overlap else self.plan

        def batch(step: int) -> dict[str, torch.Tensor]:
            time.sleep(0.0 if step else late_s)
            generator = torch.Generator().manual_seed(1000 * number + step)
            return {name: torch.randn(program.values[name].shape, generator=generator) for name in program.inputs}

        paces = tuple((step, rank, s * (1 + draw.uniform(0, unrest))) for step, rank, s in paces_of(plan, program, self.cluster))
        training = Training(steps=steps, learning_rate=_LEARNING_RATE, overlap=overlap, paces=paces)
        return TrainingJob(plan=plan, program=program, sources=self.sources[number], make_batch=batch, training=training)

    @property
    def sharing(self) -> Sharing:
        """The turns of both."""
        candidate = MergeCandidate(name="job", plan=self.plan, program=self.program)
        return merge_jobs([candidate, candidate], self.cluster).sharing


def _cluster(flops_per_s: float, bytes_per_s: float) -> Cluster:
    return even_cluster(_NUM_RANKS, flops_per_s=flops_per_s, bytes_per_s=bytes_per_s, latency_s=0.0)


def _work(network_s: float) -> _Work:
    torch.manual_seed(0)
    program = capture(_Layers(), (torch.randn(8, 64), torch.randn(8, 64)))
    sources = [{name: tensor.detach() for name, tensor in _Layers().named_parameters()} for _ in range(2)]
    probe = _cluster(1e6, 1e6)
    plan = dp_even(program, probe)
    seconds = dict.fromkeys(Resource, 0.0)
    for phase in phases_of(plan, program, probe):
        seconds[phase.resource] += phase.seconds
    cluster = _cluster(1e6, 1e6 * seconds[Resource.NETWORK] / network_s)
    compute_s = seconds[Resource.DEVICES]
    return _Work(program=program, plan=plan, cluster=cluster, sources=sources, compute_s=compute_s, network_s=network_s)


def _on_ranks(quick: bool, progress: Progress) -> Iterator[Row]:
    work = _work(0.1 if quick else 0.3)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dyorc-crowd-"))
        groups: list[Ranks] = []
        for number in range(2):
            progress(f"ranks of job {number} start")
            crowd = DeviceSharing(folder=folder, job=number, num_jobs=2)
            options = RankOptions(num_ranks=_NUM_RANKS, device="cpu", links=links_of(work.cluster), crowd=crowd)
            groups.append(stack.enter_context(Ranks(options)))
        for ratio in (Fraction(1, 5), Fraction(1)) if quick else _RATIOS:
            yield from _compared(work.at(ratio), groups, ratio, 1 if quick else 2, progress)
        progress("one job begins later")
        yield _later(work.at(Fraction(1)), groups)
        progress("ranks are slower at random")
        yield _restless(work.at(Fraction(1)), groups)
        progress("one job is killed")
        yield _killed(work.at(Fraction(1)), groups)


def _compared(work: _Work, groups: Sequence[Ranks], ratio: Fraction, rounds: int, progress: Progress) -> Iterator[Row]:
    steps = 3 if ratio < _LEAST_COMPARED else 4
    jobs, early = ([work.job(number, steps, overlap=overlap) for number in (0, 1)] for overlap in (False, True))
    sharing, label = work.sharing, f"M/C {float(ratio):g}"
    ways: dict[str, Callable[[], list[JobRun]]] = {
        "one after the other": lambda: _alone(jobs, groups),
        "in turns": lambda: run_side_by_side(jobs, groups, sharing),
    }
    if ratio >= _LEAST_COMPARED:
        ways["at once"] = lambda: run_side_by_side(jobs, groups, None)
        ways["beside their own computation"] = lambda: _alone(early, groups)
    runs: dict[str, list[list[JobRun]]] = {way: [] for way in ways}
    for number in range(rounds):
        for way, run in ways.items():
            progress(f"{label}: {way}, {number + 1} of {rounds}")
            runs[way].append(run())
    step_s = {way: [_step_s([run[job] for run in results]) for job in (0, 1)] for way, results in runs.items()}
    alone_s, turns_s = sum(step_s["one after the other"]), max(step_s["in turns"])
    note = f"{alone_s * 1e3:.0f} ms one after the other, {turns_s * 1e3:.0f} ms in turns"
    formula = float(min(1 + ratio, 1 + 1 / ratio))
    point = points_of("2 jobs in turns by M/C", list(map(float, _RATIOS)))[float(ratio)]
    yield ratio_row(
        "real ranks",
        f"{label}: 2 jobs in turns",
        formula,
        alone_s / turns_s,
        band=MODELLED,
        kind=Kind.OWN,
        note=note,
        point=point,
    )
    fair = step_s["in turns"][0] / step_s["in turns"][1]
    yield number_row(
        "real ranks", f"{label}: one job's step / the other's", 1.0, fair, band=CLOSE, kind=Kind.OWN, note="fairness"
    )
    losses = [[run.losses for run in results] for results in (*runs["one after the other"], *runs["in turns"])]
    what = f"{label}: losses in turns are those of each job alone, to the bit"
    yield _fact(what, all(results == losses[0] for results in losses), f"{steps} steps of each job, run {rounds} times")
    if ratio < _LEAST_COMPARED:
        return
    both_s = max(step_s["at once"])
    note = f"no order, and they begin together; {both_s * 1e3:.0f} ms"
    yield _ours(f"{label}: both at once", alone_s / both_s, note)
    hidden_s = sum(step_s["beside their own computation"])
    simulated_s = 2 * simulate(early[0].plan, work.program, work.cluster).total_s
    note = f"wait-free backpropagation, one job after the other; {hidden_s * 1e3:.0f} ms, simulated {simulated_s * 1e3:.0f} ms"
    yield _ours(f"{label}: gradients sent beside the backward pass", alone_s / hidden_s, note)


def _later(work: _Work, groups: Sequence[Ranks]) -> Row:
    """Without an order, the gain depends on chance: here one job happens to begin half a step later."""
    alone = _alone([work.job(number, 6) for number in (0, 1)], groups)
    runs = run_side_by_side([work.job(number, 6, late_s=number * work.compute_s) for number in (0, 1)], groups, None)
    alone_s, both_s = sum(_step_s([run]) for run in alone), max(_step_s([run]) for run in runs)
    return _ours("M/C 1: both at once, one begins half a step later", alone_s / both_s, "no order; where it begins decides")


def _restless(work: _Work, groups: Sequence[Ranks]) -> Row:
    """Ranks that are slower at random reach their turns in another order on each device."""
    alone = _alone([work.job(number, 6) for number in (0, 1)], groups)
    runs = run_side_by_side([work.job(number, 6, unrest=3.0) for number in (0, 1)], groups, work.sharing)
    is_same = [run.losses for run in runs] == [run.losses for run in alone]
    what = "M/C 1: ranks up to 4 times as slow at random: both jobs end, with the same losses"
    return _fact(what, is_same, "all devices have the same order of turns, so no job waits for one that waits for it")


def _killed(work: _Work, groups: Sequence[Ranks]) -> Row:
    """Ends the ranks of a job."""
    jobs = [work.job(number, 6) for number in (0, 1)]
    alone = _alone(jobs, groups)

    def heard(job: int, step: int) -> None:
        if (job, step) == (0, 2):
            os.kill(groups[0].pids[0], signal.SIGKILL)

    killed, other = run_side_by_side(jobs, groups, work.sharing, heard)
    is_on = killed.error is not None and other.error is None and other.losses == alone[1].losses
    what = "M/C 1: a rank of one job is killed: the other job ends with the same losses"
    return _fact(what, is_on, f"the killed job, after {len(killed.losses)} steps: {killed.error}")


def _alone(jobs: Sequence[TrainingJob], groups: Sequence[Ranks]) -> list[JobRun]:
    return [run_side_by_side([job], [ranks], None)[0] for job, ranks in zip(jobs, groups, strict=True)]


def _step_s(runs: Sequence[JobRun]) -> float:
    """The median of the seconds of a job's steps, without the first of each run."""
    for run in runs:
        if run.error:
            raise run.error
    return median(end_s - begin_s for run in runs for begin_s, end_s in zip(run.ended_s, run.ended_s[1:], strict=False))


def _fact(what: str, is_true: bool, note: str) -> Row:
    ours = "yes" if is_true else "no"
    return fact_row("real ranks", what, "yes", ours, is_so=is_true, band=EXACT, kind=Kind.OWN, note=note)


def _ours(what: str, speedup: float, note: str) -> Row:
    return own_row("baselines", what, f"{speedup:.3g}", note)


def _not_here() -> list[Row]:
    note = "needs GPUs; the formula gives 1.2 at M/C = 0.2, which is measured above"
    faster = not_here_row("abstract", "training on ImageNet is up to 20 % faster", "1.2", note)
    note = "only that losses are equal to the bit was checked, above: so is what is learned"
    return [faster, not_here_row("abstract", "the models on ImageNet converge as before", "yes", note)]
