"""What every request passes first: the keys of its scope, a normalized path, and the common HTTP methods."""

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from dyorc.gateway.origins import Arrival
from dyorc.gateway.request_ids import Ids
from dyorc.gateway.tenants import Tenant

TENANT = "dyorc.tenant"
"""The key of a request's tenant in its scope."""


EXCHANGE = "dyorc.exchange"
"""The key of its exchange in its scope."""

OUTER = "dyorc.outer"
"""The key of the scope as another ASGI server made it, if one did: with the path below which DyOrc is mounted."""


def ids_of(scope: Scope) -> Ids:
    ids: Ids = scope[EXCHANGE].ids
    return ids


def arrival_of(scope: Scope, transport: str = "http", num_bytes: int = 0) -> Arrival:
    """Returns the arrival of a request, whose body has so many bytes; of one that was refused, they do not matter."""
    exchange = scope[EXCHANGE]
    return Arrival(transport, exchange.ids, exchange.arrived_ns, num_bytes, exchange.read_ns)


def prefix_of(scope: Scope) -> str:
    """Returns the path below which clients see our routes; empty if that is none."""
    outer: Scope = scope.get(OUTER, scope)
    return str(outer.get("root_path", "")).rstrip("/")


def tenant_of(scope: Scope) -> Tenant:
    """Returns a request's tenant. There is no default, so that a route without authentication cannot work by accident."""
    tenant: Tenant = scope[TENANT]
    return tenant


def without_trailing_slash(scope: Scope) -> Scope:
    """Returns the request without slashes at the end of its path.

    A redirect would not do: most clients do not follow one, or drop the body of a POST.
    """
    path: str = scope["path"]
    if not path.endswith("/") or path == "/":
        return scope
    return {**scope, "path": path.rstrip("/") or "/"}  # a copy, since the server uses the original


def allowed_methods(routes: Sequence[BaseRoute], scope: Scope) -> list[str]:
    """Returns the methods of all routes with this path; none if there is no such route. GET implies HEAD."""
    methods: set[str] = set()
    for route in routes:
        if route.matches(scope)[0] is not Match.NONE:
            methods.update(getattr(route, "methods", None) or ())
    if "GET" in methods:
        methods.add("HEAD")
    return sorted(methods | {"OPTIONS"}) if methods else []


class CommonMethods:
    """Answers OPTIONS; answers HEAD like GET, whose body the server leaves out.

    Args:
        app: Answers everything else.
        routes: The app's routes.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["method"] == "HEAD":
                scope = {**scope, "method": "GET"}  # a copy, since the server uses the original
            elif scope["method"] == "OPTIONS" and (methods := allowed_methods(self._routes, scope)):
                await options(methods)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def options(methods: Sequence[str]) -> Response:
    """Answers OPTIONS."""
    return Response(status_code=204, headers={"Allow": ", ".join(methods)})
