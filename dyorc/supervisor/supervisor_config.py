"""What a supervisor is to serve: written by the command line, read by the supervisor. Only the standard library."""

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from dyorc.system.memory_file import make_memory_file


@dataclass(frozen=True, kw_only=True)
class SupervisorConfig:
    """What to serve, and how.

    Attributes:
        targets: Such as ``app.py:classify``.
        settings: All settings, for the cells. Most of what the supervisor itself needs is repeated in the attributes below.
        num_cells: How many cells.
        is_gateway: Whether the cells are gateways, instead of cells that run programs.
        is_dev: Whether there is one cell, which is restarted when its code changes.
        logs_json: Whether errors are written as JSON.
        host, port: For HTTP.
        grpc_port: None without gRPC.
        drain_timeout_s: How long cells may take to stop.
        hang_limit_s, restart_delay_s, max_restart_delay_s: See `CellsConfig`.
        started_s: When the command began, on the monotonic clock.
    """

    targets: list[str]
    settings: dict[str, Any]
    num_cells: int
    is_dev: bool
    is_gateway: bool
    logs_json: bool
    host: str
    port: int
    grpc_port: int | None
    drain_timeout_s: float
    hang_limit_s: float
    restart_delay_s: float
    max_restart_delay_s: float
    started_s: float

    def settings_with_ports(self, port: int, grpc_port: int | None) -> dict[str, Any]:
        """Returns the settings for cells that listen on these ports."""
        return self.settings | {"gateway": self.settings["gateway"] | {"port": port, "grpc_port": grpc_port}}

    def to_file(self) -> int:
        """Writes it to a memory file, and returns a descriptor for `from_file` that survives exec. Settings may be secret,
        and others can see a process's arguments and environment."""
        descriptor = make_memory_file("dyorc-supervisor")
        os.set_inheritable(descriptor, True)
        os.write(descriptor, json.dumps(asdict(self)).encode())
        return descriptor

    @classmethod
    def from_file(cls, descriptor: int) -> "SupervisorConfig":
        """Reads it, and closes the descriptor."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        with os.fdopen(descriptor, "rb") as file:
            return cls(**json.load(file))
