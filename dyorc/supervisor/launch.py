"""Replaces the command line's process with a supervisor."""

import os
import sys
import time
from collections.abc import Sequence

from dyorc.config import Settings
from dyorc.errors import ConfigurationError
from dyorc.gateway.tls import refuse_open_address
from dyorc.supervisor.supervisor_config import SupervisorConfig
from dyorc.system.interrupts import hold_signals_back
from dyorc.system.linux_only import require_linux
from dyorc.system.processors import num_processors
from dyorc.telemetry.histories.history_folder import check_folder


def num_cells_of(text: str, option: str = "--cells") -> int:
    """Returns the number of processes that an option asks for.

    Raises:
        ConfigurationError: If it is neither ``auto`` nor a number above 0.
    """
    if text == "auto":
        return num_processors()
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise ConfigurationError(f"{option} is {text!r}, expected auto or a number above 0")


def become_supervisor(
    targets: Sequence[str], settings: Settings, num_cells: int, *, is_dev: bool = False, is_gateway: bool = False
) -> None:
    """Replaces this process's program, so that the supervisor has only what it needs in memory. Does not return.

    Raises:
        ConfigurationError: If the server may not listen on its address, histories cannot be written where the settings say, or
            the system does not share connections out to processes on one port, as only Linux does.
    """
    if not is_dev:
        require_linux("several processes that share a port need", "leave --cells out")
    gateway, cells = settings.gateway, settings.cells
    refuse_open_address(gateway)
    if not is_gateway:
        check_folder(settings.telemetry.histories)
    config = SupervisorConfig(
        targets=list(targets), settings=settings.model_dump(mode="json"), num_cells=num_cells, is_dev=is_dev,
        is_gateway=is_gateway,
        logs_json=settings.telemetry.logs.format == "json", host=gateway.host, port=gateway.port,
        grpc_port=gateway.grpc_port_to_bind if gateway.grpc else None,
        drain_timeout_s=gateway.drain_timeout_s, hang_limit_s=cells.hang_limit_s, restart_delay_s=cells.restart_delay_s,
        max_restart_delay_s=cells.max_restart_delay_s, started_s=time.monotonic(),
    )  # fmt: skip
    sys.stdout.flush()
    sys.stderr.flush()
    hold_signals_back()  # handlers end with this program
    os.execv(sys.executable, [sys.executable, "-P", "-m", "dyorc.supervisor", str(config.to_file())])
