"""A cell of a test's own programs, and calls of them."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow, of_program
from dyorc.cells.hosted_program import NUM_COMPARED
from dyorc.cells.orchestrator_cell import make_cell
from dyorc.config import CellsConfig, OrchestratorConfig, ScalingConfig, TransportConfig
from dyorc.core.arrays import Array
from dyorc.models.registry import ModelRegistry
from dyorc.orchestrator.orchestrator import Orchestrator
from tests.asking import serve_also, submission
from tests.deadlines import wait_until_async
from tests.shared_folders import arena_folder

X = np.arange(4, dtype=np.float32)


@contextlib.asynccontextmanager
async def celled(
    *targets: Program | Workflow,
    arena_bytes: int = 2**20,
    arena_wait_s: float = 5.0,
    scaling: ScalingConfig | None = None,
    **settings: Any,
) -> AsyncGenerator[Orchestrator]:
    """Runs a cell and enters once it is ready."""
    config = CellsConfig(**{"load_retry_s": 0.01} | settings)
    transport = TransportConfig(arena_folder=arena_folder(), arena_bytes=arena_bytes, arena_wait_s=arena_wait_s)
    scaled = OrchestratorConfig(scaling=scaling or ScalingConfig())
    async with make_cell(ModelRegistry.of(targets), scaled, transport, config) as orchestrator:
        await wait_until_async(lambda: orchestrator.status.is_ready, "all programs are loaded")
        yield orchestrator


async def ask(orchestrator: Orchestrator, program: Program, x: Array) -> Array:
    """Makes one call."""
    serve_also(orchestrator, of_program(program))
    (y,) = await orchestrator.infer(submission(program, [x]))
    return y


async def move_to_loop(orchestrator: Orchestrator, program: Program, x: Array = X) -> None:
    """Calls a program until its batches run on the loop, and no longer on the thread as well, to be compared."""

    def is_there() -> bool:
        link = orchestrator.report()["link"]
        return link["num_programs_inline"] > 0 and link["num_batches_inline"] >= NUM_COMPARED

    async with asyncio.timeout(120):
        while not is_there():
            await ask(orchestrator, program, x)


def program_of(make: Callable[[], Callable[[Any], Any]], **options: Any) -> Program:
    """Makes a program of float vectors; `make` loads it."""

    @dyorc.program(name="tried", **options)
    class Tried:
        def __init__(self) -> None:
            self.call = make()

        def __call__(self, x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
            return self.call(x)

    return Tried()
