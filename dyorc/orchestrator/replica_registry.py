"""Which replicas that dial in hold their program, which should load it, and how many processes there should be."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

import structlog

from dyorc.models.status import ProgramStatus, ReplicaState, ReplicaStatus, StatusBoard
from dyorc.scaling.devices import Seat, choose_to_warm, has_room
from dyorc.scaling.model import LeadTimes
from dyorc.transport.messages import Message, Park, Parked, ReplicaHello, Warm

_log = structlog.get_logger("dyorc.orchestrator")

_RETRY_S, _MAX_RETRY_S = 0.25, 30.0
"""How long after a failed load a replica loads again; each further failure in a row doubles it."""

Scale: TypeAlias = Callable[[str, int], None]
"""Asks for this many processes of a program, in its own time."""


class ReplicaRegistry:
    """Tells parked replicas to load their program when too few hold it. Lives on the event loop.

    Until a number is wanted, all replicas of a program load it. Only the engine parks replicas that hold it, because it knows
    what they run.

    Args:
        status: Holds the state of each replica.
        send: Sends a message to a replica.
        scale: Asks for processes.
        dismiss: Stops the engine from giving a replica batches.
    """

    def __init__(
        self,
        status: StatusBoard,
        send: Callable[[str, Message], object],
        scale: Scale,
        dismiss: Callable[[str], None] = lambda replica_id: None,
    ) -> None:
        self._status = status
        self._send = send
        self._scale = scale
        self._dismiss = dismiss
        self._num_warm: dict[str, int] = {}
        self._requested_s: dict[str, deque[float]] = {}
        self._num_failures: dict[str, int] = {}
        self._retries: dict[str, asyncio.TimerHandle] = {}

    def want(self, program: str, num_warm: int, num_parked: int) -> None:
        """Sets how many replicas hold their program, and how many more processes there are."""
        status, number = self._status.programs[program], num_warm + num_parked
        if number != status.num_processes or program not in self._num_warm:  # Serve may have started with another number
            requested_s = self._requested_s.setdefault(program, deque())
            requested_s.extend([asyncio.get_running_loop().time()] * (number - status.num_processes))
            while len(requested_s) > number:
                requested_s.popleft()
            self._scale(program, number)
        self._num_warm[program] = num_warm
        self._status.want(program, num_warm, num_parked)
        self._fill(status)

    def park(self, replica_id: str) -> None:
        """Makes a replica drop its program."""
        known = self._status.find(replica_id)
        if known is not None and known[1].state is ReplicaState.READY:
            self._move(*known, ReplicaState.PARKING)
            self._send(replica_id, Park())

    def replica_parked(self, message: Parked) -> None:
        """Records that a replica holds no program, and makes it load the program if it should."""
        status, known = self._status.programs[message.program], self._status.find(message.replica_id)
        if known is None:
            requested_s = self._requested_s.get(message.program)
            now_s = asyncio.get_running_loop().time()
            start_s = now_s - requested_s.popleft() if requested_s else message.start_s
            self._learn(status, status.lead.from_parked_s if status.lead else 0.0, start_s)
            replica = ReplicaStatus(
                message.replica_id, message.pid, message.holder.node, ReplicaState.PARKED, device=message.device,
                process=message.process,
            )  # fmt: skip
            self._status.enter(message.program, replica)
            _log_state(status, replica)
        elif (before := known[1].state) is not ReplicaState.PARKED:
            self._move(*known, ReplicaState.PARKED)
            if known[1].is_leaving and before is ReplicaState.LOADING:
                self._send(message.replica_id, Park())
            self._fill_others(known[1])
        self._fill(status)

    def replica_ready(self, hello: ReplicaHello) -> bool:
        """Records that a replica holds its program. Returns False if it must not take batches: it was ordered to drop the
        program meanwhile, or is about to end.
        """
        status, known = self._status.programs[hello.program], self._status.find(hello.replica_id)
        if known is not None and known[1].is_leaving and known[1].state is ReplicaState.LOADING:
            self._move(*known, ReplicaState.PARKING)
            self._send(hello.replica_id, Park())
        if known is not None and known[1].state is ReplicaState.PARKING:
            return False
        if known is None or known[1].state is not ReplicaState.READY:
            self._num_failures.pop(hello.program, None)
            start_s = status.lead.from_cold_s - status.lead.from_parked_s if status.lead else 0.0
            self._learn(status, hello.load_s, start_s)
            pid, node, load_s = hello.pid, hello.holder.node, round(hello.load_s, 3)
            self._status.joined(hello.program, hello.replica_id, pid, node, hello.load_s, hello.members, hello.process)
            self._fill(status)  # it may have taken the place of another
            _log.info("replica_joined", program=hello.program, replica=hello.replica_id, pid=pid, node=node, load_s=load_s)
        return True

    def load_failed(self, program: str, reason: str) -> None:
        """Records that a replica could not load its program. The next attempt comes later, and later each time."""
        _log.warning("program_load_failed", program=program, error=reason)
        self._status.load_failed(program, reason)
        number = self._num_failures[program] = self._num_failures.get(program, 0) + 1
        if program in self._retries:
            self._retries[program].cancel()
        delay_s = min(_RETRY_S * 2 ** min(number - 1, 16), _MAX_RETRY_S)
        self._retries[program] = asyncio.get_running_loop().call_later(delay_s, self._retry, program)

    def replica_leaving(self, replica_id: str, grace_s: float) -> None:
        """Records that a replica is about to end. If it takes batches, it goes on until another has taken its place, for half of
        its remaining time at most.
        """
        known = self._status.find(replica_id)
        if known is None or known[1].is_leaving:
            return
        status, replica = known
        replica.is_leaving = True
        if replica.state is ReplicaState.READY:
            asyncio.get_running_loop().call_later(grace_s / 2, self._dismiss, replica_id)
        elif replica.state is not ReplicaState.LOADING:  # while it loads it receives no messages; it is parked afterwards
            self._send(replica_id, Park())
        self._fill(status)

    def should_end(self, replica_id: str) -> bool:
        """Returns whether a replica has said that it is about to end, or its program has more processes than are wanted."""
        known = self._status.find(replica_id)
        if known is None:
            return False
        status, replica = known
        return replica.is_leaving or (status.name in self._num_warm and len(status.replicas) > status.num_processes)

    def replica_left(self, replica_id: str) -> None:
        """Removes a replica that is gone. Another may have to take its place."""
        known = self._status.find(replica_id)
        self._status.left(replica_id)
        if known is not None:
            self._fill(known[0])
            self._fill_others(known[1])

    def remove(self, program: str) -> None:
        """Forgets a program."""
        if (timer := self._retries.pop(program, None)) is not None:
            timer.cancel()
        for by_program in (self._num_warm, self._requested_s, self._num_failures):
            by_program.pop(program, None)

    def close(self) -> None:
        """Sends replicas nothing from now on."""
        for timer in self._retries.values():
            timer.cancel()
        self._retries.clear()

    def _retry(self, program: str) -> None:
        del self._retries[program]
        self._fill(self._status.programs[program])

    def _fill(self, status: ProgramStatus) -> None:
        """Makes as many parked replicas load their program as are missing, and dismisses surplus ones that are leaving."""
        self._load_missing(status)
        counts = status.counts()
        num_missing = (self._num_warm.get(status.name) or 0) - counts.warm
        if num_missing <= 0 or not (counts.warming + counts.parked + counts.starting):
            for replica in status.replicas.values():
                if replica.is_leaving and replica.state is ReplicaState.READY:
                    self._dismiss(replica.replica_id)

    def _load_missing(self, status: ProgramStatus) -> None:
        parked = [replica for replica in status.of_state(ReplicaState.PARKED) if self._has_room(status, replica)]
        num_missing = len(parked)
        if (num_warm := self._num_warm.get(status.name)) is not None:
            counts = status.counts()
            num_staying = counts.warm + counts.warming - len(status.misplaced())  # misplaced ones are replaced first
            num_missing = min(num_missing, num_warm - num_staying)
        if status.name in self._retries:
            return
        for _ in range(num_missing):
            parked = [r for r in parked if r.state is ReplicaState.PARKED and self._has_room(status, r)]
            if not parked:
                return
            replica = self._beside_others(parked) or _soonest(status, parked)
            self._move(status, replica, ReplicaState.LOADING)
            self._send(replica.replica_id, Warm())

    def _has_room(self, status: ProgramStatus, replica: ReplicaStatus) -> bool:
        """Returns whether a replica's device has room for its program besides what others hold there, and may be used by it."""
        if not replica.place or self._num_held(replica.process):
            return True  # programs that share a process share its device, and one of them has it already
        if not status.may_hold(replica.place):
            return False
        held = {
            other.process or other.replica_id: program.num_gpus
            for program in self._status.programs.values()
            for other in program.replicas.values()
            if other.place == replica.place and other.state is not ReplicaState.PARKED
        }
        return has_room(sum(held.values()), status.num_gpus)

    def _num_held(self, process: str) -> int:
        """Returns how many programs are loaded in a process that is shared, or are about to be."""
        if not process:
            return 0
        replicas = (replica for status in self._status.programs.values() for replica in status.replicas.values())
        states = [replica.state for replica in replicas if replica.process == process and not replica.is_leaving]
        return sum(state in (ReplicaState.READY, ReplicaState.LOADING) for state in states)

    def _beside_others(self, parked: Sequence[ReplicaStatus]) -> ReplicaStatus | None:
        """Returns the parked replica in the process that holds most other programs of its group; None if no process holds any.

        Chains need all programs of a group in one process.
        """
        replica = max(parked, key=lambda candidate: self._num_held(candidate.process))
        return replica if self._num_held(replica.process) else None

    def _fill_others(self, replica: ReplicaStatus) -> None:
        """Loads other programs on the device that a replica has freed."""
        if replica.place:
            for status in self._status.programs.values():
                self._fill(status)

    def _move(self, status: ProgramStatus, replica: ReplicaStatus, state: ReplicaState) -> None:
        self._status.move(status, replica, state)
        _log_state(status, replica)

    @staticmethod
    def _learn(status: ProgramStatus, load_s: float, start_s: float) -> None:
        status.lead = LeadTimes(load_s, start_s + load_s)


def _log_state(status: ProgramStatus, replica: ReplicaStatus) -> None:
    _log.info(f"replica_{replica.state.value}", program=status.name, replica=replica.replica_id, pid=replica.pid)


def _soonest(status: ProgramStatus, parked: Sequence[ReplicaStatus]) -> ReplicaStatus:
    """Returns the parked replica that serves soonest; of equal ones that which has been parked for longest."""
    if len({replica.node for replica in parked}) == 1:
        return parked[0]
    read = {replica.node for replica in status.replicas.values() if replica.load_s}
    seats = [
        Seat(
            replica_id=replica.replica_id, node=replica.node, has_weights=replica.node in read,
            upstream_bytes=status.waiting_bytes.get(replica.node, 0),
        )
        for replica in parked
    ]  # fmt: skip
    choice = choose_to_warm(seats, status.lead.from_parked_s if status.lead else 0.0)
    _log.info("replica_chosen", program=status.name, replica=choice.replica_id, reason=choice.reason)
    return next(replica for replica in parked if replica.replica_id == choice.replica_id)
