"""A peer in a separate process: ``python -m tests.integration.links.link_process ADDRESS RECEIVE_TIMEOUT_S``.

Says ``hello`` and its process id, again whenever nothing comes, and does what messages tell it (`_Peer`).

"""

import ctypes
import os
import signal
import sys
import time

from dyorc.config import LinkConfig
from dyorc.transport.column_codec import Frame
from dyorc.transport.link import ReplicaEnd, dial
from tests.integration.links.numbered import first_wrong, numbered


class _Peer:
    """Each method is an order."""

    def __init__(self, link: ReplicaEnd) -> None:
        self._link = link

    def echo(self, *frames: Frame) -> None:
        """Says the same."""
        self._link.send([b"echo", *frames])

    def exchange(self, num: Frame) -> None:
        """Sends numbered messages while it receives as many, and says what was wrong with them."""
        expected = int(bytes(num))
        found: list[list[Frame]] = []
        for at in range(expected):
            self._link.send(numbered(at))
            if message := self._link.receive(is_waiting=False):
                found.append(message)
        self._check(found, expected)

    def sleep(self, num: Frame) -> None:
        """Reads nothing until there is a line on standard input, then a number of messages."""
        sys.stdin.readline()
        self._check([], int(bytes(num)))

    def _check(self, found: list[list[Frame]], expected: int) -> None:
        while len(found) < expected:
            message = self._link.receive()
            assert message is not None
            found.append(message)
        self._link.send([b"checked", first_wrong(found).encode()])

    def hold(self, duration_s: Frame) -> None:
        """Keeps the interpreter's lock for as long."""
        ctypes.PyDLL(None).usleep(int(float(bytes(duration_s)) * 1e6))
        self._link.send([b"held"])

    def speak(self, num: Frame) -> None:
        """Says so much and closes the link, without having read all that it was told."""
        for at in range(int(bytes(num))):
            self._link.send([b"word", str(at).encode()])
        self._link.close()
        os.kill(os.getpid(), signal.SIGKILL)

    def die(self, num: Frame) -> None:
        """Says so much and is killed."""
        for at in range(int(bytes(num))):
            self._link.send([b"word", str(at).encode()])
        os.kill(os.getpid(), signal.SIGKILL)

    def fork(self) -> None:
        """Dies and leaves a child behind, which has all its descriptors, until standard input ends."""
        if os.fork() == 0:
            sys.stdin.read()
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    def cpu(self) -> None:
        """Says how much processor time it has used."""
        self._link.send([b"cpu", str(time.process_time()).encode()])


def main(address: str, receive_timeout_s: str) -> None:
    """Runs until it is killed."""
    with open("/proc/self/comm", "w") as file:
        file.write(") T (")  # to read the state, look for the last bracket
    link = dial(address, LinkConfig(), float(receive_timeout_s))
    hello: list[Frame] = [b"hello", str(os.getpid()).encode()]
    link.send(hello)
    peer = _Peer(link)
    while True:
        message = link.receive()
        if message is None:
            link.send(hello)
        else:
            getattr(peer, bytes(message[0]).decode())(*message[1:])


if __name__ == "__main__":
    main(*sys.argv[1:])
