"""How `dyorc.asgi` stops. Its jobs and effects are replaced."""

import asyncio
from pathlib import Path

import pytest

import dyorc
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.orchestrator.orchestrator import Orchestrator
from tests.workflows import arithmetic

_LIMIT_S = 0.2


def test_effects_get_what_jobs_have_left_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, float]] = []

    async def drain(jobs: Jobs, timeout_s: float) -> None:
        given.append(("jobs", timeout_s))
        await asyncio.sleep(timeout_s)

    async def finish_effects(orchestrator: Orchestrator, timeout_s: float) -> None:
        given.append(("effects", timeout_s))

    monkeypatch.setattr(Jobs, "drain", drain)
    monkeypatch.setattr(Orchestrator, "finish_effects", finish_effects)
    settings = {"gateway": {"drain_timeout_s": _LIMIT_S}, "store": f"sqlite:///{tmp_path}/jobs.sqlite"}

    async def serve() -> None:
        async with dyorc.asgi(arithmetic.quadruple, settings=settings).embedded():
            pass

    asyncio.run(serve())
    assert [part for part, _ in given] == ["jobs", "effects"]
    assert given[0][1] + given[1][1] == pytest.approx(_LIMIT_S, abs=_LIMIT_S / 2)
