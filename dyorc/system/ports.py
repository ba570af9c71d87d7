"""Sockets bound to an address: for one process, or for several that share a port. Only the standard library."""

import contextlib
import socket


def bind(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Returns a socket bound to an address.

    Args:
        port: 0 takes a free one.
        is_shared: Whether other processes of this user may have it, too.

    Raises:
        OSError: If the address is not available. The message names it.
    """
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections of the last server may still be closing
    if is_shared:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise OSError(error.errno, f"cannot listen on {at}: {error.strerror}") from error
    return found


def reserve(host: str, port: int) -> socket.socket:
    """Returns a socket that keeps a port for processes of this user that share it, until it is closed.

    It never listens, so no connection ever waits there. While it is bound, it must not have SO_REUSEPORT: another server with
    that option may be there, and both would silently share the port. Afterwards it must have it, and no SO_REUSEADDR: with that,
    others may bind a port on which nobody listens at the moment.

    Args:
        port: 0 takes a free one.

    Raises:
        OSError: If the address is not available. The message names it.
    """
    found = bind(host, port)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return found


def port_of(found: socket.socket) -> int:
    """Returns the port of a bound socket."""
    return int(found.getsockname()[1])


def reserve_all(stack: contextlib.ExitStack, host: str, port: int, grpc_port: int | None) -> tuple[int, int | None]:
    """Reserves the ports for HTTP and, unless it is None, gRPC, for as long as the stack is open. Returns them.

    Raises:
        OSError: If one is not available.
    """
    http = port_of(stack.enter_context(reserve(host, port)))
    return http, None if grpc_port is None else port_of(stack.enter_context(reserve(host, grpc_port)))
