"""A server of the jobs' storm: gateway and orchestrator in one process. Imports everything, then waits for its part.

``python -m tests.chaos.jobs_storm_process``, with one line of JSON (`Part`) on its input. It ends when its input does.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path

import msgspec
import uvloop

from dyorc.config import GatewayConfig, JobsConfig, OrchestratorConfig
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.direct import DirectInference
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.service import InferenceService
from dyorc.models.registry import ModelRegistry
from dyorc.orchestrator.link_fleet import Site
from dyorc.orchestrator.linked_orchestrator import linked_orchestrator
from dyorc.store.base import Store
from dyorc.store.opening import store_of
from dyorc.store.sqlite import SqliteStore
from tests.chaos.history_storm_mistakes import JOB_MISTAKES
from tests.integration.stack import FAST_LINK, FAST_TRANSPORT
from tests.workflows import effects

MODULE = "tests.chaos.jobs_storm_process"

_JOBS = JobsConfig(lease_s=1.0, max_attempts=100, max_running=32, webhook_timeout_s=1.0)
"""An innocent job may be running each time that its server is killed."""


class Part(msgspec.Struct, frozen=True):
    """Where the server listens, where its replicas connect, and which store keeps its jobs.

    Attributes:
        keys_file: Tenants and their keys; empty: no key is needed.
        webhook_hosts: Where jobs may send their ends to.
        clock: A file with the seconds by which the wall clock of the store differs from the real one; empty: by none. A Redis has
            its own clock.
        mistake: One of `JOB_MISTAKES`, which the server makes; empty: none.
    """

    port: int
    address: str
    store: str
    keys_file: str = ""
    webhook_hosts: tuple[str, ...] = ()
    clock: str = ""
    mistake: str = ""


def _store(part: Part) -> Store:
    store = store_of(part.store)
    if not part.clock or not isinstance(store, SqliteStore):
        return store
    clock = Path(part.clock)
    return SqliteStore(store.path, lambda: time.time() + float(clock.read_text()))


async def _serve(part: Part) -> None:
    repertoire = ModelRegistry.of([effects.noted])
    config = GatewayConfig(port=part.port, drain_timeout_s=1, keys_file=part.keys_file)
    jobs_config = _JOBS.model_copy(update={"webhook_hosts": part.webhook_hosts})
    site = Site(address=part.address, link=FAST_LINK, transport=FAST_TRANSPORT, node="here")
    async with linked_orchestrator(repertoire, OrchestratorConfig(), site) as (orchestrator, _):
        service = InferenceService(orchestrator, config)
        async with (
            Jobs(service, _store(part), jobs_config) as jobs,
            HttpServer(Gateway(service, jobs), config, service.shedding, DirectInference(service)),
        ):
            stop = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
            await stop.wait()


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """Runs until the process is ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the process that started it
    line = sys.stdin.readline()
    if not line:
        return
    part = msgspec.json.decode(line, type=Part)
    if part.mistake:
        JOB_MISTAKES[part.mistake]()
    threading.Thread(target=_end_with_input, daemon=True).start()
    uvloop.run(_serve(part))


if __name__ == "__main__":
    main()
