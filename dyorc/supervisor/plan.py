"""What a supervisor is to do, written by the command line and read by the supervisor. Only the standard library."""

import json
import os
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SupervisorConfig:
    """What to serve, and how.

    Attributes:
        targets: Such as ``app.py:classify``.
        settings: All settings, for the cells. The supervisor uses only what stands here by itself.
        num_cells: How many cells.
        is_gateway: Whether they are gateways, instead of cells that run programs.
        is_dev: Whether it is one cell that is started again when its code changes.
        logs_json: Whether what goes wrong is written as JSON.
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

    def to_file(self) -> int:
        """Writes it to memory, and returns a descriptor for `from_file` that survives exec. Settings may be secret: arguments
        and the environment are for everybody to see."""
        descriptor = os.memfd_create("plan", 0)
        os.set_inheritable(descriptor, True)
        os.write(descriptor, json.dumps(asdict(self)).encode())
        return descriptor

    @classmethod
    def from_file(cls, descriptor: int) -> "SupervisorConfig":
        """Reads it, and closes the descriptor."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        with os.fdopen(descriptor, "rb") as file:
            return cls(**json.load(file))
