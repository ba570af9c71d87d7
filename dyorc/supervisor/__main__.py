"""The supervisor's process: `python -m dyorc.supervisor DESCRIPTOR`. The command line replaces itself with it (exec), which frees
the memory of all that the command line had imported."""

import asyncio
import sys

from dyorc.supervisor.console import report_error, report_errors_as_json
from dyorc.supervisor.supervisor_config import SupervisorConfig
from dyorc.system import standard_streams


def main() -> int:
    """Runs the supervisor. Returns the exit code."""
    standard_streams.outlive_readers()
    config = SupervisorConfig.from_file(int(sys.argv[1]))
    if config.logs_json:
        report_errors_as_json()
    try:
        return asyncio.run(_run(config))
    except OSError as error:
        report_error(str(error))
        return 1


async def _run(config: SupervisorConfig) -> int:
    if config.is_dev:
        from dyorc.supervisor.dev import DevServer

        return await DevServer(config).run()
    from dyorc.supervisor.supervisor import Supervisor

    return await Supervisor(config).run()


if __name__ == "__main__":
    sys.exit(main())
