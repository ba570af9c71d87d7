"""Runs both storms whose histories are judged: of jobs, and of versions, leases, effects and streams.

    python -m tests.chaos.histories [--store sqlite|redis|both] [--seconds N] [--clients N] [--seed N] [--keep FOLDER]

The last line is one JSON object, with the figures of each storm on each store; the exit status is 1 if anything is violated.
"""

import argparse
import json
import sys

from benchmarks.output_paths import output_folder
from tests.chaos import history_storm, services_storm


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "redis", "both"], default="both")
    parser.add_argument("--seconds", type=float, default=60, help="for each storm on each store")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=output_folder, help="a folder for what was recorded")
    options = parser.parse_args()
    stores = ["sqlite", "redis"] if options.store == "both" else [options.store]
    rest = (options.seconds, options.clients, options.seed, options.keep)
    jobs = {store: history_storm.run(store, *rest) for store in stores}
    services = {store: services_storm.run(store, *rest) for store in stores}
    print(json.dumps({"jobs": jobs, "services": services}))
    are_violated = any(each["not_linearizable"] or each["wrong"] for each in jobs.values())
    sys.exit(are_violated or any(any(each["violations"].values()) for each in services.values()))


if __name__ == "__main__":
    main()
