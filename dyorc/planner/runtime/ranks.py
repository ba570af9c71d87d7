"""The parent of the ranks: starts one process for each, sends them plans and steps, and ends them all when one fails.

    with Ranks(RankOptions(num_ranks=2)) as ranks:
        results = ranks.run(plan, sources)

One group of ranks runs many plans, one after the other. Not for several threads. However it ends, no process, file or shared
memory is left.
"""

import os
import selectors
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import torch

from dyorc.errors import PlanError, PlanRunError
from dyorc.planner.plan import Plan, for_samples
from dyorc.planner.plan.interpret import Piece, pieces_of, whole_of
from dyorc.planner.plan.on_torch import TorchAlgebra
from dyorc.planner.plan.plan_file import plan_to_json
from dyorc.planner.runtime.checkpoint import check_checkpoint, commit, is_lasting
from dyorc.planner.runtime.egress import Egress
from dyorc.planner.runtime.job_turns import JobTurns
from dyorc.planner.runtime.message_lanes import MEMORY_FOLDER
from dyorc.planner.runtime.rank_messages import (
    DoneMessage,
    FailedMessage,
    FetchMessage,
    LoadMessage,
    Message,
    Pieces,
    SaveMessage,
    StartMessage,
    StepMessage,
    StopMessage,
    Update,
)
from dyorc.planner.runtime.rank_processes import RankForkServer, RankProcess, StartRank, spawn_rank
from dyorc.planner.runtime.rank_progress import Event, RankExited, RankPosition, RankProgress, error_of, is_cause
from dyorc.planner.runtime.region_moves import Key
from dyorc.planner.runtime.shaping import LinkShape
from dyorc.planner.runtime.shared_devices import DeviceSharing
from dyorc.system.durable_files import make_folder
from dyorc.transport.arena_file import sweep

_GRACE_S = 3.0
"""How long the rank that is to blame may take to be noticed after another has lost it."""
_STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOptions:
    """How ranks run.

    Attributes:
        num_ranks: How many.
        device: `cpu`, `cuda`, or `auto`: CUDA if there is a GPU for each rank.
        slowness: For each rank, how often it does its work, at least 1; empty for once each.
        links: Slower links, by source and target rank.
        egress: Machines that ranks are on, with their ways out, in place of `links`: `egress_of` has them from a cluster.
        crowd: Other jobs that use the same emulated devices and links.
        timeout_s: How long no rank may get any further before the run is given up.
        start_timeout_s: How long ranks may take to start.
        folder: In which they meet in a folder of their own; empty: that for temporary files.
    """

    num_ranks: int
    device: str = "auto"
    slowness: tuple[float, ...] = ()
    links: Mapping[tuple[int, int], LinkShape] = field(default_factory=dict[tuple[int, int], LinkShape])
    egress: Egress | None = None
    crowd: DeviceSharing | None = None
    timeout_s: float = 120.0
    start_timeout_s: float = 120.0
    folder: str = ""

    def __post_init__(self) -> None:
        if self.num_ranks < 1:
            raise PlanError(f"there must be a rank, and num_ranks is {self.num_ranks}")
        if self.slowness and (len(self.slowness) != self.num_ranks or min(self.slowness) < 1):
            raise PlanError(f"slowness must be {self.num_ranks} numbers from 1 on, and is {list(self.slowness)}")
        if self.egress and len(self.egress.machine_of) != self.num_ranks:
            raise PlanError(f"there are {self.num_ranks} ranks, and machines of {len(self.egress.machine_of)} are given")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What one run of a plan gave.

    Attributes:
        results: Each result that was asked for, whole.
        seconds: How long each rank took.
        peak_bytes: The most that each rank's pieces took at a time.
        sent_bytes: What each rank sent in messages: everything over shaped links and in our own rings, but not what torch's own
            collectives send.
        copied_bytes: What each rank copied to send over a plan's edges, or to keep what came.
        timings: For each rank, if asked for: the plan's step of each of its instructions, and the seconds. A communication during
            computation counts with what it takes to begin it.
        error: If the step was guarded, the type and text of what an operation raised; the results are worthless then.
    """

    results: Mapping[str, torch.Tensor]
    seconds: tuple[float, ...]
    peak_bytes: tuple[int, ...]
    sent_bytes: tuple[int, ...] = ()
    copied_bytes: tuple[int, ...] = ()
    timings: tuple[tuple[tuple[int, float], ...], ...] = ()
    error: tuple[str, str] | None = None


class Ranks:
    """A group of ranks, as a context manager.

    Args:
        options: How they run.
        start_rank: Starts the process of each, as `RankForkServer.fork` does. None: a fork server of the group's own does,
            or `spawn_rank` where devices are GPUs.
    """

    def __init__(self, options: RankOptions, start_rank: StartRank | None = None) -> None:
        self._options = options
        self._num = options.num_ranks
        self._start_rank = start_rank
        self._fork_server = RankForkServer(options.start_timeout_s)
        self._processes: list[RankProcess] = []
        self._folder: Path | None = None
        self._progress: RankProgress | None = None
        self._plan: Plan | None = None
        self._begun = deque[int]()  # the number of samples of each step that was begun
        self._sized: dict[int, Plan] = {}  # the plan for a number of samples

    def __enter__(self) -> "Ranks":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop(is_abrupt=error is not None)

    def start(self) -> None:
        """Starts the processes, and waits until they have met.

        Raises:
            PlanRunError: One has not started.
        """
        inside = self._options.folder
        self._folder = Path(tempfile.mkdtemp(prefix="ranks." if inside else "dyorc-ranks-", dir=inside or None))
        self._fork_server.remove_at_end(str(self._folder))
        try:
            self._progress = RankProgress(self._folder / "progress", self._num)
            device = _device_for(self._options.device, self._num)
            start_rank = self._start_rank or (spawn_rank if device == "cuda" else self._fork_server.fork)
            for _ in range(self._num):
                self._processes.append(start_rank(self._options.timeout_s))
            for rank in range(self._num):
                self._send(
                    rank,
                    StartMessage(
                        rank=rank,
                        num_ranks=self._num,
                        folder=str(self._folder),
                        device=device,
                        slowness=self._options.slowness[rank] if self._options.slowness else 1.0,
                        shapes=self._options.links,
                        egress=self._options.egress,
                        crowd=self._options.crowd,
                        timeout_s=self._options.timeout_s,
                    ),
                )
            self._answers(self._options.start_timeout_s)
        except BaseException:
            self.stop(is_abrupt=True)
            raise

    def stop(self, *, is_abrupt: bool = False) -> None:
        """Ends the processes, and removes their folder."""
        processes, self._processes = self._processes, []
        for rank in processes:
            if is_abrupt:
                rank.kill()
            else:
                try:
                    rank.wire.send(StopMessage())
                except OSError:
                    rank.kill()
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        for rank in processes:
            try:
                rank.wait(max(deadline_s - time.monotonic(), 0.1))
            except TimeoutError:
                rank.kill()
                rank.wait(_STOP_TIMEOUT_S)
            rank.wire.end.close()
        self._fork_server.close()
        if self._progress:
            self._progress.close()
            self._progress = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)  # the fork server may have done it
            self._folder = None
            sweep(MEMORY_FOLDER)  # of ranks that were killed while they opened each other's memory

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of the processes, by rank."""
        return tuple(rank.pid for rank in self._processes)

    def run(self, plan: Plan, sources: Mapping[str, torch.Tensor], *, overlap: bool = False) -> RunResult:
        """Runs a plan once.

        Args:
            plan: What to run. Whether it is right is the caller's to know: see `dyorc.planner.runtime.run`.
            sources: For each source of the program, the whole tensor.
            overlap: Whether communication runs during computation. The results are the same.

        Raises:
            PlanError: The plan needs more ranks, or a source is missing or has another shape or type.
            PlanRunError: A rank raised, died or did not go on. The group has ended.
        """
        self.load(plan, sources, overlap=overlap)
        self.begin_step({name: tensor for name, tensor in sources.items() if not is_lasting(plan, name)})
        return self.end_step()

    def load(
        self,
        plan: Plan,
        sources: Mapping[str, torch.Tensor],
        *,
        overlap: bool = False,
        updates: Sequence[Update] = (),
        checkpoint: Path | None = None,
        weights: Path | None = None,
        paces: Sequence[tuple[int, int, float]] = (),
        turns: JobTurns | None = None,
    ) -> int:
        """Gives the ranks a plan and the sources that last from step to step.

        Args:
            plan: What will run.
            sources: The lasting ones, whole; others are ignored.
            overlap: Whether communication runs during computation.
            updates: What is done with the sources after each step.
            checkpoint: Where the lasting sources come from instead.
            weights: A safetensors file from which ranks read the lasting sources that are not given.
            paces: How long emulated devices take: a step, a rank, and the seconds; `paces_of` has them from a cluster.
            turns: Of all jobs that use the same devices; communication cannot run during computation then.

        Returns:
            How many steps of training are in the sources: 0 without a checkpoint.
        """
        if plan.num_ranks > self._num:
            raise PlanError(f"the plan is for {plan.num_ranks} ranks, and there are {self._num}")
        if turns is not None and overlap:
            raise PlanError("a job that takes turns cannot communicate during its own computation")
        first = check_checkpoint(checkpoint, plan).step if checkpoint else 0
        lasting = [value for value in plan.sources if is_lasting(plan, value) and (weights is None or value in sources)]
        pieces = self._cut(plan, {} if checkpoint else sources, () if checkpoint else lasting)
        self._plan, self._sized = plan, {0: plan}
        message = LoadMessage(
            plan=plan_to_json(plan),
            overlap=overlap,
            updates=tuple(updates),
            checkpoint=str(checkpoint or ""),
            weights=str(weights or ""),
            paces=tuple(paces),
            turns=turns,
        )
        for rank in range(self._num):
            self._send(rank, message, pieces[rank])
        self._answers(self._options.timeout_s)
        return first

    def begin_step(
        self,
        inputs: Mapping[str, torch.Tensor],
        answer: Sequence[str] | None = None,
        *,
        is_timed: bool = False,
        num_samples: int = 0,
        is_guarded: bool = False,
    ) -> None:
        """Starts a run of the plan on the ranks; returns at once. At most a few steps may be begun before the first is ended.

        Args:
            inputs: The sources that are new with each step, whole.
            answer: The results that are wanted; None for all.
            is_timed: Whether the seconds of each instruction are wanted.
            num_samples: How many samples the inputs hold, for a model that answers; 0 for as many as the plan was made for.
            is_guarded: Whether the ranks go on with zeros after an operation that raised, and say what it was in the end.
        """
        plan = self._sized_for(num_samples)
        names = list(plan.results) if answer is None else answer
        pieces = self._cut(plan, inputs, [value for value in plan.sources if not is_lasting(plan, value)])
        tensors = tuple(plan.results[name] for name in names)
        message = StepMessage(answer=tensors, is_timed=is_timed, num_samples=num_samples, is_guarded=is_guarded)
        for rank in range(self._num):
            self._send(rank, message, pieces[rank])
        self._begun.append(num_samples)

    def _sized_for(self, num_samples: int) -> Plan:
        plan = self._loaded()
        if num_samples not in self._sized:
            self._sized[num_samples] = for_samples(plan, num_samples)
        return self._sized[num_samples]

    def end_step(self) -> RunResult:
        """Waits for the step that was begun first, and returns what it gave."""
        plan = self._sized_for(self._begun.popleft())
        answers = self._answers(self._options.timeout_s)
        held = {key.tensor for _, pieces in answers for key in pieces}
        return RunResult(
            results=_whole(plan, {value: t for value, t in plan.results.items() if t in held}, [pieces for _, pieces in answers]),
            seconds=tuple(done.seconds for done, _ in answers),
            peak_bytes=tuple(done.peak_bytes for done, _ in answers),
            sent_bytes=tuple(done.sent_bytes for done, _ in answers),
            copied_bytes=tuple(done.copied_bytes for done, _ in answers),
            timings=tuple(done.timings for done, _ in answers),
            error=next((done.error for done, _ in answers if done.error), None),
        )

    def save(self, folder: Path, step: int) -> None:
        """Writes a checkpoint: all of it, or nothing that counts.

        Args:
            folder: Is made if it is not there. An earlier checkpoint in it is replaced.
            step: How many steps of training are in it.
        """
        plan = self._loaded()
        make_folder(folder)
        token = os.urandom(8).hex()
        names = [f"{token}-{rank}.safetensors" for rank in range(self._num)]
        for rank, name in enumerate(names):
            self._send(rank, SaveMessage(path=str(folder / name)))
        answers = self._answers(self._options.timeout_s)
        commit(plan, step, folder, {name: done.saved for name, (done, _) in zip(names, answers, strict=True)})

    def fetch(self) -> dict[str, torch.Tensor]:
        """Returns the sources that last from step to step, whole, as they are now."""
        plan = self._loaded()
        for rank in range(self._num):
            self._send(rank, FetchMessage())
        first = {value: tensors[0] for value, tensors in plan.sources.items() if is_lasting(plan, value)}
        return _whole(plan, first, [pieces for _, pieces in self._answers(self._options.timeout_s)])

    def _loaded(self) -> Plan:
        if self._plan is None:
            raise PlanError("no plan is loaded")
        return self._plan

    def _cut(self, plan: Plan, sources: Mapping[str, torch.Tensor], names: Sequence[str]) -> list[dict[Key, torch.Tensor]]:
        pieces: list[dict[Key, torch.Tensor]] = [{} for _ in range(self._num)]
        for name in names:
            value = plan.values[name]
            if name not in sources:
                raise PlanError(f"the plan needs the {value.kind} {name}, and it was not given")
            has = f"{str(sources[name].dtype).removeprefix('torch.')} {list(sources[name].shape)}"
            if has != f"{value.dtype} {list(value.shape)}":
                raise PlanError(f"the plan needs {name} as {value.dtype} {list(value.shape)}, and it was given as {has}")
            for tensor in plan.sources[name]:
                for piece, array in pieces_of(plan, tensor, sources[name], TorchAlgebra()).items():
                    pieces[piece.rank][Key(piece.tensor, piece.part)] = array
        return pieces

    def _send(self, rank: int, message: Message, pieces: Pieces | None = None) -> None:
        try:
            self._processes[rank].wire.send(message, pieces)
        except OSError:
            self._give_up({}, time.monotonic() + _GRACE_S)
        except IndexError:
            raise PlanRunError("the ranks have ended", rank=None, step=None) from None

    def _answers(self, timeout_s: float) -> list[tuple[DoneMessage, dict[Key, torch.Tensor]]]:
        """Waits for one answer of each rank."""
        answers: dict[int, tuple[DoneMessage, dict[Key, torch.Tensor]]] = {}
        moved_s, before = time.monotonic(), self.where()
        while len(answers) < self._num:
            for rank, answer in self._next({rank for rank in range(self._num) if rank not in answers}):
                if not isinstance(answer, tuple):
                    self._give_up({rank: answer}, time.monotonic() + _GRACE_S, done=answers)
                answers[rank] = answer  # pyright: ignore[reportArgumentType]
            if (now := self.where()) != before or not before:
                moved_s, before = time.monotonic(), now
            if time.monotonic() > moved_s + timeout_s:
                self._give_up({}, time.monotonic(), done=answers)
        return [answers[rank] for rank in range(self._num)]

    def _next(
        self, ranks: set[int], timeout_s: float = 0.2
    ) -> list[tuple[int, Event | tuple[DoneMessage, dict[Key, torch.Tensor]]]]:
        """Waits a little for answers, and for the ends of processes."""
        events: list[tuple[int, Event | tuple[DoneMessage, dict[Key, torch.Tensor]]]] = []
        with selectors.DefaultSelector() as selector:
            for rank in ranks:
                selector.register(self._processes[rank].wire.end, selectors.EVENT_READ, rank)
            ready: list[int] = [key.data for key, _ in selector.select(timeout_s)]
        for rank in ready:
            process = self._processes[rank]
            try:
                message, pieces = process.wire.receive()
            except (EOFError, OSError):
                events.append((rank, RankExited(process.wait(_STOP_TIMEOUT_S))))
                continue
            assert isinstance(message, DoneMessage | FailedMessage), "ranks say nothing else"
            events.append((rank, message if isinstance(message, FailedMessage) else (message, pieces)))
        return events

    def _give_up(self, events: dict[int, Event], until_s: float, done: Mapping[int, object] | None = None) -> None:
        """Looks for the rank that is to blame until a time, ends all, and raises."""
        answered = set(done or ())
        where = self.where()
        while not any(map(is_cause, events.values())):
            for rank, event in self._next({r for r in range(self._num) if r not in events}):
                if isinstance(event, RankExited | FailedMessage):
                    events[rank] = event
            if time.monotonic() >= until_s:
                break
        missing = [rank for rank in range(self._num) if rank not in events and rank not in answered]
        error = error_of(events, missing, where, self._plan, self._options.timeout_s)
        self.stop(is_abrupt=True)
        raise error

    def where(self) -> list[RankPosition]:
        """Returns how far each rank is."""
        return [RankPosition(*self._progress.of(rank)) for rank in range(self._num)] if self._progress else []


def _whole(plan: Plan, tensors: Mapping[str, str], pieces: Sequence[Pieces]) -> dict[str, torch.Tensor]:
    named = {Piece(key.tensor, rank, key.part): t for rank, held in enumerate(pieces) for key, t in held.items()}
    return {value: whole_of(plan, tensor, named, TorchAlgebra()) for value, tensor in tensors.items()}


def _device_for(device: str, num_ranks: int) -> str:
    has_gpus = torch.cuda.is_available() and torch.cuda.device_count() >= num_ranks
    if device == "cuda" and not has_gpus:
        raise PlanError(f"{num_ranks} ranks on GPUs need as many GPUs, and there are {torch.cuda.device_count()}")
    return "cuda" if device == "cuda" or (device == "auto" and has_gpus) else "cpu"
