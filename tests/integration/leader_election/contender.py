"""A process that wants to lead a group, and says what becomes of that: ``leads FENCE``, ``lost FENCE``.

    python -m tests.integration.leader_election.contender STORE GROUP LEASE_S

It ends when it has lost its lead, or gives it up when its input ends.
"""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

from dyorc.leader_election.leadership import Leadership
from dyorc.store.opening import store_of


class Contender:
    """Such a process, seen from a test."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def fence(self) -> int:
        """Returns the fence with which it leads, 0 if it has not won."""
        return next((int(line.split()[1]) for line in self.said if line.startswith("leads")), 0)

    def end(self) -> None:
        """Has it give up its lead, and waits until it has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def clear(self) -> None:
        """Ends it for certain."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())


@contextmanager
def contender(store: str, group: str, lease_s: float) -> Generator[Contender]:
    """Runs one."""
    command = [sys.executable, "-m", "tests.integration.leader_election.contender", store, group, str(lease_s)]
    found = Contender(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    try:
        yield found
    finally:
        found.clear()


async def _main(store: str, group: str, lease_s: float) -> None:
    loop = asyncio.get_running_loop()
    async with store_of(store) as leases, Leadership(leases, group, lease_s) as leadership:
        fence = await leadership.win()
        leadership.announce(f"unix:///nowhere/{fence}")
        print("leads", fence, flush=True)
        ended = loop.run_in_executor(None, sys.stdin.read)
        lost = asyncio.create_task(leadership.wait_until_lost())
        await asyncio.wait([ended, lost], return_when=asyncio.FIRST_COMPLETED)
        if lost.done():
            print("lost", fence, flush=True)
            sys.stdout.flush()
        lost.cancel()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
