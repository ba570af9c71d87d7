"""The event loops of a process: one for each program that waits or yields, and one for all `async` programs of a group."""

import threading
from collections import Counter

from dyorc.authoring.program import Program
from dyorc.replica.program_loop import ProgramLoop


class ProgramLoops:
    """Opens loops, and ends each with its last program. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[str, ProgramLoop] = {}
        self._num_users: Counter[ProgramLoop] = Counter()

    def open(self, program: Program) -> ProgramLoop:
        """Returns the loop of a program, to be closed: its group's, or a new one."""
        group = program.options.group if program.style.is_async else None
        with self._lock:
            loop = None if group is None else self._shared.get(group)
            if loop is None:
                loop = ProgramLoop(group or program.name)
                if group is not None:
                    self._shared[group] = loop
            self._num_users[loop] += 1
            return loop

    def close(self, loop: ProgramLoop) -> bool:
        """Ends a loop, unless other programs use it. Returns whether it ends."""
        with self._lock:
            self._num_users[loop] -= 1
            if self._num_users[loop] > 0:
                return False
            self._forget(loop)
        loop.stop()
        return True

    def give_up(self, loop: ProgramLoop) -> None:
        """Interrupts a loop that hangs, for all programs that use it. The next program of its group gets another one."""
        with self._lock:
            self._forget(loop)
        loop.give_up()

    def _forget(self, loop: ProgramLoop) -> None:
        self._num_users.pop(loop, None)
        if self._shared.get(loop.program) is loop:
            del self._shared[loop.program]
