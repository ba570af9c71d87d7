"""Routes about how many replicas programs have. Not part of the protocol."""

from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Request

from dyorc.gateway.http.front import tenant_of
from dyorc.gateway.http.json_bodies import read_json
from dyorc.gateway.http.openapi import json_body
from dyorc.gateway.service import InferenceService
from dyorc.protocol.api_paths import SCALING

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    num_warm: _Count | None = None
    num_parked: _Count | None = None


_decoder = msgspec.json.Decoder(_Wanted)
_NUMBER = {"type": "integer", "minimum": 0, "nullable": True}
_BODY = json_body({"type": "object", "properties": {"num_warm": _NUMBER, "num_parked": _NUMBER}})


def add_scaling_routes(app: FastAPI, service: InferenceService) -> None:
    """Adds ``/scaling[/{program}]``."""

    @app.get(SCALING, tags=["scaling"])
    async def scaling() -> dict[str, Any]:
        """How many replicas each program has, how many are wanted and why, and the last decisions."""
        return await service.server_view.scaling()

    @app.post(f"{SCALING}/{{program}}", openapi_extra=_BODY, tags=["scaling"])
    async def scale(request: Request, program: str) -> dict[str, Any]:
        """Has a program keep `num_warm` replicas that take batches and `num_parked` whose processes wait. The forecast decides
        again on a number that is null or left out. Needs a key that may manage."""
        tenant_of(request.scope).check_managing()
        wanted = await read_json(request, _decoder)
        await service.server_view.scale(program, wanted.num_warm, wanted.num_parked)
        return await service.server_view.scaling()
