# pyright: basic
# grpcio ships no types.
"""`ModelInfer`: the hot path. Reads and writes bytes, and lets protobuf touch only what it must."""

from typing import Any

from dyorc.gateway.admission import Ticket
from dyorc.gateway.copies import joined
from dyorc.gateway.grpc.arrivals import let_in, limit_s_of
from dyorc.gateway.grpc.callers import tenant_of
from dyorc.gateway.grpc.decoding import decode_request, model_in, parse
from dyorc.gateway.grpc.encoding import encode_response
from dyorc.gateway.grpc.errors import refuse
from dyorc.gateway.origins import Arrival, steps_of, written
from dyorc.gateway.request_ids import ids_in_metadata
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tenants import Tenant


class ModelInfer:
    """Answers `ModelInfer`. A client that cancels, goes away or runs out of time cancels the task of its call.

    Args:
        service: Runs requests.
    """

    def __init__(self, service: InferenceService) -> None:
        self._service = service

    async def answer(self, arrived_ns: int, message: bytes, context: Any) -> bytes:
        """Answers one request.

        Args:
            arrived_ns: When its call was accepted, before its message was read.
        """
        arrival = Arrival.read_now("grpc", ids_in_metadata(context), arrived_ns, len(message))
        service, owner = self._service, ""
        try:
            let_in(service.shedding, context, arrived_ns)
            tenant = tenant_of(service.access, context)
            owner = tenant.name
            with service.admission.admit(tenant, len(message)) as ticket:
                ticket.arrived_ns = arrived_ns
                arrival = arrival.traced_as(service.origins.traced_by_metadata(context))
                return await self._infer(message, tenant, ticket, arrival, limit_s_of(context, arrived_ns))
        except Exception as error:
            service.origins.refused(arrival, error, lambda: model_in(message), owner)
            await refuse(context, error, "ModelInfer", arrival.ids)

    async def _infer(self, message: bytes, tenant: Tenant, ticket: Ticket, arrival: Arrival, timeout_s: float | None) -> bytes:
        found, raws = parse(message)
        arrival.ids.name(found.id)
        model = self._service.model(tenant, found.model_name, found.model_version or None)
        with self._service.memory() as memory:
            request, _ = await decode_request(found, raws, model, memory, self._service.off_loop)
            origin = self._service.origins.of(request, arrival)
            answer = await self._service.infer(
                ticket,
                model,
                request,
                memory,
                timeout_s=timeout_s,
                origin=origin,
                take=lambda arrays: joined(encode_response(model, request, arrays, steps_of(request, origin))),
            )
        written(origin)
        return answer
