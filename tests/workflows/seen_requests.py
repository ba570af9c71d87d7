"""Workflows and programs that say for which request they run."""

from collections.abc import AsyncIterator

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray

import dyorc


def describe(info: dyorc.RequestInfo) -> dict[str, object]:
    """Returns it as plain values."""
    return {
        "id": info.id,
        "tenant": info.tenant,
        "priority": info.priority,
        "headers": dict(info.headers),
        "trace": "" if info.trace is None else info.trace.trace_id,
        "has_time": info.left_s is not None and 0 < info.left_s < 3600,
    }


@dyorc.program(batched=False, sees_requests=True)
def see(text: str) -> dict:
    return describe(dyorc.request())


@dyorc.program(batched=False, sees_requests=True)
async def see_waiting(text: str) -> dict:
    return describe(dyorc.request())


@dyorc.program(sees_requests=True)
def see_rows(x: Float[ndarray, "batch n"]) -> tuple[Float[ndarray, "batch n"], Int64[ndarray, " batch"]]:
    infos = dyorc.requests()
    assert len(infos) == len(x)
    return x, np.array([int(info.id.rpartition("-")[2]) if info.id[:3] == "id-" else -1 for info in infos])


@dyorc.program(batched=False)
def blind(text: str) -> str:
    return dyorc.request().id


@dyorc.program(sees_requests=True)
def confused(x: Float[ndarray, "batch n"]) -> Float[ndarray, "batch n"]:
    dyorc.request()
    return x


@dyorc.program(batched=False)
def pack(first: dict, second: dict, third: dict) -> dict:
    return {"workflow": first, "program": second, "waiting": third}


@dyorc.workflow
async def seen(text: str) -> dict:
    return pack(describe(dyorc.request()), see(text), see_waiting(text))


@dyorc.workflow
async def numbered(x: Float[ndarray, " n"]) -> tuple[Float[ndarray, " n"], Int64[ndarray, ""]]:
    return see_rows(x)


@dyorc.workflow
async def parts(text: str) -> AsyncIterator[str]:
    for _ in range(2):
        yield dyorc.request().id


@dyorc.workflow
async def blindly(text: str) -> str:
    return blind(text)


@dyorc.workflow
async def confusedly(x: Float[ndarray, " n"]) -> Float[ndarray, " n"]:
    return confused(x)
