"""Turns of several jobs at the same resources, such as a device and its network: one computes while another communicates.

Each rank's device has a board, a small file that the processes of all jobs on that device map. It says for each resource whose
turn it is. The order of turns is the same on all boards, and no job keeps a turn while it waits for another, so none waits on one
device for a job that waits for it on the next.

A turn is passed over if its job is not there, or if it has not ended within a lease. After that all turns of the job are passed
over until it asks for one. A job that comes too late goes on without its turn: turns decide how long things take, never what
comes out.

    FOLDER/RANK        for each resource [turn: u64, since_ns: u64], then for each job [is_late: u64], in the machine's byte order
    FOLDER/RANK.JOB    taken by the job's process as long as it takes part (`shared_devices.py`)

A board has no lock, which a stopped process could hold. A process that ends a turn or passes it over writes the number of the
next turn, so two that do so at once write the same number. A process that was stopped just before may set it back: each job
passes over its own past turns, so that the number advances again.
"""

import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dyorc.planner.runtime.shared_devices import PresenceLock

_POLL_S = 0.0003
_LOOK_S = 0.02
"""How often a waiting job checks for a job that is gone or late."""
_WORD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseClaim:
    """A phase of a job's step, and its turns.

    Attributes:
        begins: The number of the plan's step that it begins with.
        resource: What it needs.
        place: Which turn of each period is its own.
        delay: In which period the phase of the first step is.
    """

    begins: int
    resource: int
    place: int
    delay: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTurns:
    """What the ranks of one job know of the turns of all.

    Attributes:
        folder: Where the boards are.
        job: Which job this is.
        claims: For each job, its phases in order.
        num_steps: After how many steps this job leaves.
        lease_s: How long a turn may take before the next job goes on.
    """

    folder: str
    job: int
    claims: tuple[tuple[PhaseClaim, ...], ...]
    num_steps: int
    lease_s: float


class _Owner(NamedTuple):
    job: int
    delay: int


class Board:
    """One device's board, as one job sees it. Not for several threads."""

    def __init__(self, turns: JobTurns, rank: int) -> None:
        self._job = turns.job
        self._lines = _lines(turns.claims)
        self._lease_ns = int(turns.lease_s * 1e9)
        self._late_at = 2 * (1 + max(self._lines))
        path = Path(turns.folder) / str(rank)
        self._there = [PresenceLock(path.with_suffix(f".{job}")) for job in range(len(turns.claims))]
        size = (self._late_at + len(turns.claims)) * _WORD
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(file, size)
            self._map = mmap.mmap(file, size)
        finally:
            os.close(file)
        self._words = memoryview(self._map).cast("Q")

    def join(self) -> None:
        """Takes part from now on. Jobs begin when all have joined; leases begin anew."""
        self._there[self._job].enter()
        for resource in self._lines:
            self._words[2 * resource + 1] = time.monotonic_ns()

    def leave(self) -> None:
        """Stops taking turns."""
        self._there[self._job].leave()

    def close(self) -> None:
        """Leaves, and closes the files."""
        for presence in self._there:
            presence.close()
        self._words.release()
        self._map.close()

    def turn_of(self, claim: PhaseClaim, step: int) -> int:
        """Returns the number of a phase's turn in one of the job's steps."""
        return (step + claim.delay) * len(self._lines[claim.resource]) + claim.place

    def take(self, resource: int, turn: int) -> bool:
        """Waits for a turn; False if it has been passed over."""
        self._words[self._late_at + self._job] = False
        next_look_s = 0.0
        while (now := self._words[2 * resource]) < turn:
            if self._is_unowned(resource, now):
                self.end(resource, now)
            elif time.monotonic() < next_look_s:
                time.sleep(_POLL_S)
            elif self._is_given_up(resource, now):
                self.end(resource, now)
            else:
                next_look_s = time.monotonic() + _LOOK_S
        return now == turn

    def end(self, resource: int, turn: int) -> None:
        """Ends a turn, unless it has been ended."""
        if self._words[2 * resource] == turn:
            self._words[2 * resource + 1] = time.monotonic_ns()
            self._words[2 * resource] = turn + 1

    def _owner(self, resource: int, turn: int) -> _Owner | None:
        period, place = divmod(turn, len(self._lines[resource]))
        owner = self._lines[resource][place]
        return owner if period >= owner.delay else None

    def _is_unowned(self, resource: int, turn: int) -> bool:
        """Whether a turn that this job is waiting for the end of is its own, or comes before its job's first step."""
        owner = self._owner(resource, turn)
        return owner is None or owner.job == self._job or bool(self._words[self._late_at + owner.job])

    def _is_given_up(self, resource: int, turn: int) -> bool:
        owner = self._owner(resource, turn)
        if owner is None or not self._there[owner.job].is_taken():
            return True
        if time.monotonic_ns() - self._words[2 * resource + 1] <= self._lease_ns:
            return False
        if self._words[2 * resource] == turn:
            self._words[self._late_at + owner.job] = True
        return True


def _lines(claims: Sequence[Sequence[PhaseClaim]]) -> dict[int, list[_Owner]]:
    """For each resource, whose turns those of a period are."""
    owners: dict[int, dict[int, _Owner]] = {}
    for job, phases in enumerate(claims):
        for claim in phases:
            owners.setdefault(claim.resource, {})[claim.place] = _Owner(job, claim.delay)
    return {resource: [line[place] for place in sorted(line)] for resource, line in owners.items()}


class TurnTaker:
    """Takes a job's turns on one device as its steps go on. Not for several threads."""

    def __init__(self, turns: JobTurns, rank: int) -> None:
        self._claims = turns.claims[turns.job]
        self._num_steps = turns.num_steps
        self._board = Board(turns, rank)
        self._board.join()
        self._step = 0
        self._next = 0  # the phase that comes next
        self._held: tuple[int, int] | None = None

    def reach(self, plan_step: int) -> None:
        """Ends the turns of earlier phases, and waits for that of the phase which a step of the plan belongs to."""
        while self._next < len(self._claims) and plan_step >= self._claims[self._next].begins and self._step < self._num_steps:
            self._end_turn()
            claim = self._claims[self._next]
            self._next += 1
            turn = self._board.turn_of(claim, self._step)
            if self._board.take(claim.resource, turn):
                self._held = claim.resource, turn

    def end_step(self) -> None:
        """Ends the last turn of a step; after the last step, leaves."""
        self.reach(self._claims[-1].begins)  # a rank may have had nothing to do in the last phases
        self._end_turn()
        self._step += 1
        self._next = 0
        if self._step == self._num_steps:
            self._board.leave()

    def close(self) -> None:
        """Leaves."""
        self._end_turn()
        self._board.close()

    def _end_turn(self) -> None:
        if self._held:
            self._board.end(*self._held)
            self._held = None
