"""Whoever keeps a forked replica alive: a connection to it, and the means to end it."""

import contextlib
import signal
import time

from dyorc.replica.lines import JsonLineSocket, Message
from dyorc.transport.peer_process import PeerProcess

_GONE_S = 5.0
"""How long a process may take to be gone once it has hung up, or was killed."""


class ReplicaHandle:
    """Holds a process until it is closed. One thread.

    Raises:
        OSError: If the process is gone.
    """

    def __init__(self, path: str) -> None:
        self.line = JsonLineSocket.dial(path)
        self.process = PeerProcess(self.line.connection)

    def adopt(self, key: str, timeout_s: float) -> bool:
        """Returns whether the process is of the program that `key` stands for, and now this holder's."""
        self.line.send("adopt", key=key)
        with contextlib.suppress(TimeoutError):
            while (message := self.line.receive(timeout_s)) is not None:
                if message["kind"] == "adopted":
                    return message["is_yours"]
        return False

    def kill(self) -> None:
        """Kills the process, whatever it does."""
        if self.process.end_descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.process.end_descriptor, signal.SIGKILL)

    def end(self, timeout_s: float) -> None:
        """Has the process end after its running batch; kills it if it does not end in time. Closes the connection."""
        self.line.send("stop")
        give_up_s = time.monotonic() + timeout_s
        try:
            while self._receive(give_up_s) is not None:
                pass
        except TimeoutError:
            self.kill()
        self.process.wait(_GONE_S)  # it hangs up before it lets go of its arena
        self.close()

    def _receive(self, give_up_s: float) -> Message | None:
        return self.line.receive(max(0.001, give_up_s - time.monotonic()))

    def close(self) -> None:
        """Lets go."""
        self.line.close()
        self.process.close()
