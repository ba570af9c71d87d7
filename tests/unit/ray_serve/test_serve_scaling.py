"""Which numbers of replicas Serve is told, and when."""

import asyncio
from collections.abc import Mapping

import pytest

from dyorc.ray_serve import serve_scaling
from dyorc.ray_serve.serve_scaling import ServeScaling
from tests.deadlines import wait_until_async


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What Serve was told last, by application."""
    found: dict[str, int] = {}

    def tell(wanted: Mapping[str, tuple[str, int]]) -> None:
        found.update({application: number for application, (_, number) in wanted.items()})

    monkeypatch.setattr(serve_scaling, "_send", tell)
    return found


def test_replicas_of_an_earlier_orchestrator_are_kept_for_a_while(told: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_scaling, "_KEEP_S", 0.2)

    async def take_over() -> None:
        scaling = ServeScaling({"busy": 1, "idle": 1}, lambda program: f"group:{program}")
        scaling.begin({"busy": 5, "idle": 1})
        scaling.scale("idle", 2)
        await wait_until_async(lambda: told, "more are asked for at once")
        assert told == {"group:idle": 2}
        await wait_until_async(lambda: "group:busy" in told, "fewer are asked for later")
        assert told == {"group:idle": 2, "group:busy": 1}
        await scaling.close()

    asyncio.run(take_over())


def test_without_an_earlier_one_fewer_are_asked_for_at_once(told: dict[str, int]) -> None:
    async def begin() -> None:
        scaling = ServeScaling({"program": 2})
        scaling.scale("program", 1)
        scaling.begin({})
        await wait_until_async(lambda: told, "it is told")
        assert told == {"program": 1}
        await scaling.close()

    asyncio.run(begin())
