"""Runs a supervisor, or the one of `dyorc dev`, by the configuration that the command line has left."""

import asyncio

from dyorc.supervisor.console import report_error, report_errors_as_json
from dyorc.supervisor.supervisor_config import SupervisorConfig
from dyorc.system import standard_streams


def supervise(descriptor: int) -> int:
    """Runs the supervisor. Returns the exit code.

    Args:
        descriptor: Of the file with the configuration.
    """
    standard_streams.outlive_readers()
    config = SupervisorConfig.from_file(descriptor)
    if config.logs_json:
        report_errors_as_json()
    try:
        return asyncio.run(_run(config))
    except OSError as error:
        report_error(error.strerror or str(error))  # without the number that Python puts before it
        return 1


async def _run(config: SupervisorConfig) -> int:
    if config.is_dev:
        from dyorc.supervisor.dev import DevServer

        return await DevServer(config).run()
    from dyorc.supervisor.supervisor import Supervisor

    return await Supervisor(config).run()
