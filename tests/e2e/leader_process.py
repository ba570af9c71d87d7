"""An orchestrator of a group: it runs the requests of gateways, and those named on its standard input.
To ``nodes`` it answers how many nodes Ray believes to be alive.

    python -m tests.e2e.leader_process TARGET       # settings come from the environment

It writes a line of JSON for whatever happens: that it leads, that its programs are ready, each answer, why it ends.
"""

import asyncio
import sys
from typing import Any

import msgspec
import numpy as np

from dyorc.authoring.loading import load
from dyorc.authoring.workflow import Workflow
from dyorc.deployment.loaded_versions import ServerRuntime
from dyorc.leader_election.leadership import Leadership
from dyorc.server.cluster_setup import network_of
from dyorc.server.orchestrator_process import gateway_listener
from dyorc.server.program_loading import connect_ahead, deploy_in_background, load_targets, run_programs
from dyorc.settings.settings_reader import read_settings
from dyorc.store.opening import store_of
from tests.asking import submission


def _say(**values: Any) -> None:
    print(msgspec.json.encode(values).decode(), flush=True)


async def _answer(running: ServerRuntime, workflow: Workflow, seed: int) -> None:
    while True:
        try:
            outputs = await running.orchestrator.infer(submission(workflow, [np.array(seed)], (0.0,)))
        except Exception as error:
            _say(failed=f"{type(error).__name__}: {error}")
            await asyncio.sleep(0.1)
        else:
            _say(seed=seed, outputs=[int(each) for each in outputs])
            return


async def _main(target: str) -> None:
    settings = read_settings()
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    with load_targets([target], settings) as what:
        workflow = load(target)
        assert isinstance(workflow, Workflow)
        async with store_of(settings.store) as store, Leadership(store, settings.cluster.group, settings.cluster.lease_s) as held:
            await connect_ahead(settings, without_ray=False)
            _say(standing_by=True)
            fence = await held.win()
            _say(leads=fence)
            async with (
                run_programs(what, settings, None, None, without_ray=False, lead=held.lead) as running,
                gateway_listener(running.orchestrator, settings, held.lead, network_of(settings.cluster)) as desk,
            ):
                held.announce(desk.address, running.address, running.orchestrator.tensors.exchange.holder.node)
                async with deploy_in_background(running) as deploy:
                    deploy()
                    serving, losing = (
                        asyncio.create_task(one) for one in (_serve(running, workflow, stdin), held.wait_until_lost())
                    )
                    await asyncio.wait([serving, losing], return_when=asyncio.FIRST_COMPLETED)
                    _say(over=losing.result() if losing.done() else "")
                    serving.cancel()
                    losing.cancel()


async def _serve(running: ServerRuntime, workflow: Workflow, stdin: asyncio.StreamReader) -> None:
    tasks = {asyncio.create_task(_say_ready(running))}
    _say(serves=True)
    while line := await stdin.readline():
        task = _say_nodes() if line == b"nodes\n" else _answer(running, workflow, int(line))
        tasks.add(asyncio.create_task(task))


async def _say_ready(running: ServerRuntime) -> None:
    status = running.orchestrator.status
    while not status.is_ready:
        await status.wait_for_change(0.1)
    _say(ready={name: sorted(one.replica_pids.values()) for name, one in status.programs.items()})


async def _say_nodes() -> None:
    import ray

    nodes: list[dict[str, Any]] = await asyncio.to_thread(ray.nodes)
    _say(nodes=sum(node["Alive"] for node in nodes))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
