"""The messages between a rank fork server and its process: JSON with descriptors, over a Unix socket. One thread at each end."""

import array
import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

_LENGTH = struct.Struct("<Q")
_MAX_DESCRIPTORS = 8


def send(end: socket.socket, content: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Sends a message. The other end gets its own descriptors.

    Raises:
        OSError: The other end is gone.
    """
    packed = json.dumps(content).encode()
    socket.send_fds(end, [_LENGTH.pack(len(packed))], descriptors)
    end.sendall(packed)


def receive(end: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Waits for a message, and returns what it says and the descriptors that came along: the caller's to close.

    Raises:
        EOFError: The other end is gone.
        OSError: So it is; or nothing came within the socket's timeout.
    """
    room = socket.CMSG_SPACE(_MAX_DESCRIPTORS * array.array("i").itemsize)
    # `socket.recv_fds` would let programs that are started meanwhile inherit them.
    head, ancillary, _, _ = end.recvmsg(_LENGTH.size, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data)
    (left,) = _LENGTH.unpack(head) if len(head) == _LENGTH.size else (1,)  # a message is never empty, so what is cut off is EOF
    packed = bytearray()
    while left:
        part = end.recv(left)
        if not part:
            raise EOFError
        packed += part
        left -= len(part)
    return json.loads(packed), list(descriptors)
