"""The supervisor's process: `python -m dyorc.supervisor DESCRIPTOR`. The command line becomes it by exec, so that what it had to
import is gone from memory."""

import asyncio
import sys

from dyorc.supervisor.console import report_error, report_errors_as_json
from dyorc.supervisor.plan import SupervisorConfig
from dyorc.system import standard_streams


def main() -> int:
    """Runs what the plan says. Returns the exit code."""
    standard_streams.outlive_readers()
    plan = SupervisorConfig.from_file(int(sys.argv[1]))
    if plan.logs_json:
        report_errors_as_json()
    try:
        return asyncio.run(_run(plan))
    except OSError as error:
        report_error(str(error))
        return 1


async def _run(plan: SupervisorConfig) -> int:
    if plan.is_dev:
        from dyorc.supervisor.dev import DevServer

        return await DevServer(plan).run()
    from dyorc.supervisor.supervisor import Supervisor

    return await Supervisor(plan).run()


if __name__ == "__main__":
    sys.exit(main())
