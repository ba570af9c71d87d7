"""Messages that wait on the rank that sends until the rank that receives asks for them, by the number of their block."""

import threading
import time

from dyorc.errors import TensorLostError, TransportError

_LANE_BITS = 24


class Outgoing:
    """What a tensor server reads from: a message of a lane is let go when the next one of that lane is asked for.

    Args:
        timeout_s: How long a reader waits for a message.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._messages: dict[int, memoryview] = {}
        self._is_closed = False

    @staticmethod
    def block_of(lane: int, number: int) -> int:
        """Returns the number under which a message is asked for: the lane's, and which of its messages it is, from 1."""
        return number << _LANE_BITS | lane

    def put(self, lane: int, number: int, message: memoryview) -> None:
        """Offers a message."""
        with self._changed:
            self._messages[self.block_of(lane, number)] = message
            self._changed.notify_all()

    def read_only(self, block_id: int, offset: int, num_bytes: int) -> memoryview:
        """Returns bytes of a message; waits for it.

        Raises:
            TensorLostError: It did not come in time, or the sender has closed.
            TransportError: It has no such bytes.
        """
        end_s = time.monotonic() + self._timeout_s
        with self._changed:
            self._messages.pop(block_id - (1 << _LANE_BITS), None)
            while block_id not in self._messages:
                if self._is_closed or not self._changed.wait(max(end_s - time.monotonic(), 0.0)):
                    raise TensorLostError(f"message {block_id >> _LANE_BITS} of lane {block_id % (1 << _LANE_BITS)} never came")
            message = self._messages[block_id]
        if offset < 0 or num_bytes < 0 or offset + num_bytes > len(message):
            raise TransportError(f"{num_bytes} bytes from {offset} are not within a message of {len(message)}")
        return message[offset : offset + num_bytes]

    def is_intact(self, block_id: int) -> bool:
        """Returns whether the message is still there."""
        return block_id in self._messages

    def close(self) -> None:
        """Ends the waiting."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
