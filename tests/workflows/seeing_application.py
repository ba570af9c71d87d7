"""An application whose handlers say for which request they run."""

from typing import Any

from fastapi import FastAPI

import dyorc
from tests.workflows.seen_requests import describe, seen

api = FastAPI()


@api.get("/see")
async def see_all() -> dict[str, Any]:
    return {"handler": describe(dyorc.request()), "model": await dyorc.call(seen, "x")}


@api.get("/mine")
async def see_mine() -> dict[str, object]:
    return describe(dyorc.request())


server = dyorc.asgi(seen, app=api)
