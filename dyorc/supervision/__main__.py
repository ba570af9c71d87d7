"""The supervisor's process: `python -m dyorc.supervision DESCRIPTOR`. The command line becomes it by exec, so that what it had to
import is gone from memory."""

import asyncio
import sys

from dyorc import standard_streams
from dyorc.supervision.console import complain, complain_as_json
from dyorc.supervision.plan import Plan


def main() -> int:
    """Runs what the plan says. Returns the exit code."""
    standard_streams.outlive_readers()
    plan = Plan.from_file(int(sys.argv[1]))
    if plan.logs_json:
        complain_as_json()
    try:
        return asyncio.run(_run(plan))
    except OSError as error:
        complain(str(error))
        return 1


async def _run(plan: Plan) -> int:
    if plan.is_dev:
        from dyorc.supervision.dev import Dev

        return await Dev(plan).run()
    from dyorc.supervision.supervisor import Supervisor

    return await Supervisor(plan).run()


if __name__ == "__main__":
    sys.exit(main())
