"""The process of one rank: carries out its parent's messages one after the other.

    python -m dyorc.planner.runtime.rank FILE_DESCRIPTOR

Computes with one thread, unless its fork server sets another number. Ends when the parent says so or goes away, even
during a computation.
"""

import contextlib
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import torch

from dyorc.planner.plan import Plan, for_samples
from dyorc.planner.plan.plan_file import plan_from_json
from dyorc.planner.program import ValueKind
from dyorc.planner.runtime.checkpoint import Checkpoint, lasting_pieces, write_pieces
from dyorc.planner.runtime.communication_channels import InlineChannel, RankChannels, ThreadChannel
from dyorc.planner.runtime.egress import EgressShaper
from dyorc.planner.runtime.job_turns import TurnTaker
from dyorc.planner.runtime.links import LinkLostError, Links
from dyorc.planner.runtime.message_lanes import Lanes, lanes_of
from dyorc.planner.runtime.rank_messages import (
    DoneMessage,
    FailedMessage,
    FetchMessage,
    LoadMessage,
    Pieces,
    SaveMessage,
    StartMessage,
    StepMessage,
    StopMessage,
    Update,
    Wire,
    wire_over,
)
from dyorc.planner.runtime.rank_progress import RankProgress
from dyorc.planner.runtime.rank_schedule import RankSchedule, divide_schedule, schedule_of, then_id
from dyorc.planner.runtime.rank_weights import read_weights
from dyorc.planner.runtime.region_moves import Key, pieces_at, terms_at
from dyorc.planner.runtime.schedule_executor import Emulated, ScheduleExecutor
from dyorc.planner.runtime.shaping import Buckets, Shaper
from dyorc.planner.runtime.shared_devices import Pause, SharedDevice, sleep_for

if TYPE_CHECKING:
    from dyorc.planner.runtime.media import Media


class Rank:
    """One rank. Not for several threads."""

    def __init__(self, start: StartMessage) -> None:
        self._start = start
        index = f":{start.rank}" if start.device == "cuda" else ""
        self._device = torch.device(start.device + index)
        crowd, rank = start.crowd, start.rank
        self._computing, self._sending = (
            SharedDevice(crowd, rank, use).pause if crowd else sleep_for for use in ("device", "network")
        )
        shaper = _shaper_of(start, self._sending)
        self._links = Links(rank=start.rank, num_ranks=start.num_ranks, device=self._device, shaper=shaper)
        self._progress = RankProgress(Path(start.folder) / "progress", start.num_ranks)
        self._loaded: _Loaded | None = None
        self._run = 0  # the number of the step, from 1
        self._num_opened = 0  # plans with edges

    def start(self) -> None:
        """Meets the others."""
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        self._links.start(Path(self._start.folder) / "store", self._start.timeout_s)

    def stop(self) -> None:
        """Leaves them."""
        if self._loaded:
            self._loaded.close()
        self._links.stop()

    def handle(
        self, message: LoadMessage | StepMessage | SaveMessage | FetchMessage, pieces: Pieces
    ) -> tuple[DoneMessage, Pieces]:
        """Does what the parent says, and returns the answer."""
        pieces = {key: tensor.to(self._device) for key, tensor in pieces.items()}
        if isinstance(message, LoadMessage):
            if self._loaded:
                self._loaded.close()
            self._loaded = self._load(message, pieces)
            return DoneMessage(), {}
        assert self._loaded is not None, "the parent loads first"
        match message:
            case StepMessage():
                return self._step(self._loaded, message, pieces)
            case SaveMessage():
                return DoneMessage(
                    saved=write_pieces(self._loaded.plan, self._start.rank, self._loaded.state, Path(message.path))
                ), {}
            case FetchMessage():
                held = [piece.key for piece in lasting_pieces(self._loaded.plan, self._start.rank)]
                return DoneMessage(), {key: self._loaded.state[key] for key in held}

    def _load(self, message: LoadMessage, pieces: Pieces) -> "_Loaded":
        plan = plan_from_json(message.plan)
        state = dict(pieces)
        if message.checkpoint:
            state |= _read_state(plan, self._start.rank, Path(message.checkpoint), self._device)
        if message.weights:
            read = read_weights(plan, self._start.rank, Path(message.weights))
            state = {key: tensor.to(self._device) for key, tensor in read.items()} | state
        lanes = lanes_of(plan) if self._device.type == "cpu" else {}
        work = _Work(
            self._start.rank,
            RankChannels((lambda: ThreadChannel(self._device)) if message.overlap else InlineChannel),
            TurnTaker(message.turns, self._start.rank) if message.turns else None,
            {step: pace_s for step, rank, pace_s in message.paces if rank == self._start.rank},
            lanes,
            self._open_media(lanes) if lanes else None,
        )
        loaded = _Loaded(plan, work, message.updates, state, partial(self._executor, work))
        self._links.prepare(loaded.ready(0)[0].schedule.groups)  # the same for any number of samples
        return loaded

    def _open_media(self, lanes: Lanes) -> "Media":
        """Opens this rank's ends of a plan's edges; what that needs is imported by plans that have some."""
        from dyorc.planner.runtime.channel_endpoints import ChannelEndpoints
        from dyorc.planner.runtime.media import Media

        self._num_opened += 1
        ends = ChannelEndpoints(self._start.rank, lanes, self._start.timeout_s)
        ends.open(self._links, str(self._num_opened))
        return Media(ends, self._start.timeout_s)

    def _executor(self, work: "_Work", schedule: RankSchedule) -> ScheduleExecutor:
        def reach(step: int) -> None:
            self._progress.note(self._start.rank, self._run, step)
            if work.turns:
                work.turns.reach(step)

        emulated = Emulated(slowness=self._start.slowness, paces_s=work.paces_s, pause=self._computing)
        return ScheduleExecutor(schedule, self._links, work.channels, emulated=emulated, media=work.media, reach=reach)

    def _step(self, loaded: "_Loaded", message: StepMessage, inputs: Pieces) -> tuple[DoneMessage, Pieces]:
        self._run += 1
        began_s, sent_bytes, copied_bytes = time.perf_counter(), self._links.sent_bytes, loaded.copied_bytes
        runner, lasting = loaded.ready(message.num_samples)
        made = runner.run({**lasting, **inputs}, is_guarded=message.is_guarded)
        if loaded.work.turns:
            loaded.work.turns.end_step()
        answer = {
            piece.key: made[piece.key]
            for tensor in message.answer
            for piece in terms_at(runner.schedule.plan, tensor)
            if piece.rank == self._start.rank
        }
        loaded.update(made)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        seconds, timings = time.perf_counter() - began_s, runner.timings if message.is_timed else ()
        error = None if runner.error is None else (type(runner.error).__name__, str(runner.error))
        done = DoneMessage(
            seconds=seconds,
            peak_bytes=runner.peak_bytes,
            sent_bytes=self._links.sent_bytes - sent_bytes,
            copied_bytes=loaded.copied_bytes - copied_bytes,
            timings=tuple(timings),
            error=error,
        )
        return done, answer


def _shaper_of(start: StartMessage, pause: Pause) -> Shaper | None:
    if start.egress is not None:
        return EgressShaper(start.egress, start.rank, Path(start.folder) / "egress")
    return Buckets(start.rank, start.shapes, pause) if start.shapes else None


class _Work(NamedTuple):
    """How a plan's steps are carried out."""

    rank: int
    channels: RankChannels
    turns: TurnTaker | None
    paces_s: Mapping[int, float]
    lanes: Lanes
    media: "Media | None"


class _Loaded:
    """A plan that is ready to run, and the sources that last from step to step."""

    def __init__(
        self,
        plan: Plan,
        work: _Work,
        updates: tuple[Update, ...],
        state: dict[Key, torch.Tensor],
        executor: Callable[[RankSchedule], ScheduleExecutor],
    ) -> None:
        self.plan = plan
        self.work = work
        self.state = state
        self._updates = updates
        self._executor = executor
        self._ready: dict[int, tuple[ScheduleExecutor, Pieces]] = {}

    @property
    def copied_bytes(self) -> int:
        """What its edges have copied."""
        return self.work.media.copied_bytes if self.work.media else 0

    def close(self) -> None:
        """Ends its channels, and leaves the turns to others."""
        self.work.channels.close()
        if self.work.media:
            self.work.media.close()
        if self.work.turns:
            self.work.turns.close()

    def ready(self, num_samples: int) -> tuple[ScheduleExecutor, Pieces]:
        """Returns what runs the plan for so many samples, and the pieces that it begins each time with. Both are prepared once.

        Args:
            num_samples: How many; 0 means as many as the plan was made for.
        """
        if num_samples not in self._ready:
            self._ready[num_samples] = self._prepare(num_samples)
        return self._ready[num_samples]

    def _prepare(self, num_samples: int) -> tuple[ScheduleExecutor, Pieces]:
        plan = for_samples(self.plan, num_samples) if num_samples else self.plan
        pairs = [(update.made, update.source) for update in self._updates]
        schedule = schedule_of(plan, self.work.rank, then=pairs, lanes=self.work.lanes)
        if plan.inference is None:
            return self._executor(schedule), self.state
        once, often = divide_schedule(schedule, self.state)
        made = self._executor(once).run(self.state)
        read = {key for instruction in often.instructions for key in instruction.reads}
        kept = {key: tensor for key, tensor in made.items() if key in read or key.tensor in plan.results.values()}
        return self._executor(often), kept

    def update(self, made: Pieces) -> None:
        """Gives sources their new values."""
        for update in self._updates:
            for key in [key for key in self.state if key.tensor == update.source]:
                tensor = made[Key(then_id(update.made, key.tensor), key.part)]
                if update.learning_rate is None:
                    self.state[key] = tensor.contiguous()
                else:
                    self.state[key] = torch.sub(self.state[key], tensor, alpha=update.learning_rate)


def _read_state(plan: Plan, rank: int, path: Path, device: torch.device) -> dict[Key, torch.Tensor]:
    state: dict[Key, torch.Tensor] = {}
    with Checkpoint.open(path) as checkpoint:
        for value, tensors in plan.sources.items():
            if plan.values[value].kind is ValueKind.INPUT:
                continue
            for piece in [piece for tensor in tensors for piece in pieces_at(plan, tensor) if piece.rank == rank]:
                state[piece.key] = checkpoint.read_piece(plan, piece).to(device)
    return state


def serve(wire: Wire) -> None:
    """Does what the parent says until it says stop. If the parent goes away, the process ends."""
    threading.Thread(target=_end_with, args=(wire.end,), name="dyorc-parent", daemon=True).start()
    message, pieces = wire.receive()
    assert isinstance(message, StartMessage)
    rank = Rank(message)
    try:
        rank.start()
        wire.send(DoneMessage())
        while True:
            message, pieces = wire.receive()
            if isinstance(message, StopMessage):
                rank.stop()
                return
            assert isinstance(message, LoadMessage | StepMessage | SaveMessage | FetchMessage), "the parent says nothing else"
            wire.send(*rank.handle(message, pieces))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent is gone
    except BaseException as error:
        with contextlib.suppress(EOFError, OSError):
            wire.send(FailedMessage(error=f"{type(error).__name__}: {error}", is_of_link=isinstance(error, LinkLostError)))
            wire.receive()  # the parent ends this process when it knows what happened


def _end_with(end: socket.socket) -> None:
    """Ends this process once the other end of a connection is closed, even while it computes or waits for a rank that is gone."""
    poll = select.poll()
    poll.register(end, select.POLLRDHUP)
    poll.poll()
    os._exit(0)


def become_rank(end: socket.socket) -> NoReturn:
    """Makes this process a rank for as long as the parent holds the other end of a connection.

    Args:
        end: This process's from now on.
    """
    if "lo" in {name for _, name in socket.if_nameindex()}:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this machine
    serve(wire_over(end))
    sys.stdout.flush()
    os._exit(0)  # a thread of a channel that waits for a lost rank would be waited for


def main() -> None:
    """Takes over the socket whose descriptor is the only argument."""
    torch.set_num_threads(1)
    become_rank(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
