"""Environment variables that Ray and Ray Serve read at import, and pass on to their processes."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

_NUM_REPLICA_PORTS = 100
_ALWAYS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray gives its workers a niceness of 15. On a shared machine, that would measure the neighbours.
    "RAY_worker_niceness": "0",
}
_SINGLE_PORTS = (
    "RAY_SERVE_HAPROXY_METRICS_PORT",
    "RAY_SERVE_HAPROXY_STATS_PORT",
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT",
    "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT",
)
_HAPROXY_FILES = {
    "CONFIG_FILE_LOC": "haproxy.cfg",
    "SOCKET_PATH": "admin.sock",
    "METRICS_SOCKET_PATH": "metrics.sock",
    "SERVER_STATE_BASE": "",
    "SERVER_STATE_FILE": "server-state",
}


def set_environment(has_haproxy: bool, folder: Path) -> None:
    """Sets the variables in this process. With HAProxy, selects Ray Serve's throughput mode, with its files in `folder` and on
    free ports."""
    os.environ |= _ALWAYS
    token = folder / "token"  # without a path of our own, Ray leaves its token in the user's home
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    if not has_haproxy:
        return
    os.environ |= {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_SERVE_ENABLE_HA_PROXY": "1"}
    # The rest lets two of these run on one machine and end quickly; none of it is on the path of a request.
    os.environ |= {f"RAY_SERVE_HAPROXY_{name}": str(folder / "h" / file) for name, file in _HAPROXY_FILES.items()}
    *ports, http_base, grpc_base = find_free_ports(len(_SINGLE_PORTS) + 2)
    os.environ |= {name: str(port) for name, port in zip(_SINGLE_PORTS, ports, strict=True)}
    for kind, base in (("HTTP", http_base), ("GRPC", grpc_base)):  # Serve tries one after another
        os.environ[f"RAY_SERVE_DIRECT_INGRESS_MIN_{kind}_PORT"] = str(base)
        os.environ[f"RAY_SERVE_DIRECT_INGRESS_MAX_{kind}_PORT"] = str(min(base + _NUM_REPLICA_PORTS, 65535))
    os.environ["RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S"] = "0"


def find_free_ports(num_ports: int) -> list[int]:
    """Returns ports that were free a moment ago: Ray wants to be told which to use, and opens them itself."""
    sockets = [socket.socket() for _ in range(num_ports)]
    try:
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()
