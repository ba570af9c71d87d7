"""Addresses and sockets: which addresses only this machine reaches, and sockets bound for one process or for several that share a
port. Only the standard library.
"""

import contextlib
import ipaddress
import socket


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches an address. A name counts as reachable by others, except ``localhost``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Returns a socket bound to an address.

    Args:
        port: 0 takes a free one.
        is_shared: Whether other processes of this user may have it, too.

    Raises:
        OSError: If the address is not available. The message names it.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections of the last server may still be closing
    # Accepted connections inherit it. Otherwise a part of a stream waits until the client has confirmed the part before, which it
    # may do 40 ms later. asyncio sets it too, but not for sockets of protocol 0, which those of a ready-made listener have.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if is_shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise OSError(error.errno, f"cannot listen on {at}: {error.strerror}") from error
    return bound


def reserve(host: str, port: int) -> socket.socket:
    """Returns a socket that keeps a port for processes of this user that share it, until it is closed.

    It never listens, so no connection ever waits there. It is bound without SO_REUSEPORT, or it would silently share the port
    with another server that has the option. Afterwards it has SO_REUSEPORT, and no SO_REUSEADDR, which would let others bind a
    port on which no socket listens at the moment.

    Args:
        port: 0 takes a free one.

    Raises:
        OSError: If the address is not available. The message names it.
    """
    reserved = bind(host, port)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return reserved


def port_of(bound: socket.socket) -> int:
    """Returns the port of a bound socket."""
    return int(bound.getsockname()[1])


OTHER_GRPC_PORT = "--grpc-port N takes another port for gRPC (0: a free one)"


def reserve_for_grpc(host: str, port: int) -> socket.socket:
    """Reserves a port for gRPC, see `reserve`.

    Raises:
        OSError: If the address is not available. The message names it, and the option.
    """
    try:
        return reserve(host, port)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}; {OTHER_GRPC_PORT}") from error


def reserve_all(stack: contextlib.ExitStack, host: str, port: int, grpc_port: int | None) -> tuple[int, int | None]:
    """Reserves the ports for HTTP and, unless it is None, gRPC, for as long as the stack is open. Returns them.

    Raises:
        OSError: If one is not available.
    """
    http = port_of(stack.enter_context(reserve(host, port)))
    return http, None if grpc_port is None else port_of(stack.enter_context(reserve_for_grpc(host, grpc_port)))
