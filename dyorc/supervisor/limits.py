"""Which limits of a server are divided among its cells."""

from dyorc.config import Settings


def settings_of_cell(settings: Settings, num_cells: int) -> Settings:
    """Returns the settings of one of several cells: they protect one machine's memory together."""
    gateway, engine, jobs = settings.gateway, settings.engine, settings.jobs
    return settings.model_copy(
        update={
            "gateway": gateway.model_copy(
                update={
                    "max_requests": _share(gateway.max_requests, num_cells),
                    "max_connections": _share(gateway.max_connections, num_cells),
                    # A request of the largest size must fit into each cell.
                    "max_bytes_in_flight": max(_share(gateway.max_bytes_in_flight, num_cells), _largest(settings)),
                }
            ),
            "engine": engine.model_copy(update={"max_requests": _share(engine.max_requests, num_cells)}),
            "jobs": jobs.model_copy(update={"max_running": _share(jobs.max_running, num_cells)}),
        }
    )


def _largest(settings: Settings) -> int:
    return min(settings.gateway.max_request_bytes, settings.gateway.max_bytes_in_flight)


def _share(limit: int, num_cells: int) -> int:
    return -(-limit // num_cells)
