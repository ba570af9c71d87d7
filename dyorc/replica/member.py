"""A forked process becomes a member of a group: a rank of the plan that a replica runs. Called by the fork server, in the child.

It lives as long as the replica that leads the group holds the only connection to it.
"""

import contextlib
import importlib
import os
import socket
import sys
import traceback
from typing import NoReturn

from dyorc.replica.assignment import ReplicaAssignment
from dyorc.replica.forked_process import name_process, settle

_CALL_S = 10.0
"""How long it waits for its leader."""


def become(orders: str, path: str, told: int) -> NoReturn:
    """Runs a rank until its leader is gone.

    Args:
        orders: The `ReplicaAssignment` of its leader.
        path: Where to listen for it.
        told: A descriptor, written to once it listens.
    """
    try:
        assignment = ReplicaAssignment.from_json(orders)
        settle(assignment)
        name_process(f"dyorc-rank-{assignment.source.program}")
        importlib.import_module("dyorc.planner.runtime.rank").become_rank(_accept_leader(path, told))
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(1)


def _accept_leader(path: str, listening_pipe: int) -> socket.socket:
    """Returns the connection of the caller, which sees this process as the one it talks to, since this one calls `listen`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        try:
            listener.listen(1)
            listener.settimeout(_CALL_S)
            os.write(listening_pipe, b"1")
            os.close(listening_pipe)
            connection, _ = listener.accept()
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
    connection.settimeout(None)
    return connection
