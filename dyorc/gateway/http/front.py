"""What every request passes first: authentication, normalizing its path, and the common HTTP methods."""

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from dyorc.gateway.tenants import Tenant

TENANT = "dyorc.tenant"
"""Where in a request's scope its tenant is."""


def tenant_of(scope: Scope) -> Tenant:
    """Returns a request's tenant. There is no default: a route that nobody asked a key for must not work."""
    tenant: Tenant = scope[TENANT]
    return tenant


def without_trailing_slash(scope: Scope) -> Scope:
    """Returns the request without slashes at the end of its path.

    No redirect: most clients do not follow one, or drop the body of a POST.
    """
    path: str = scope["path"]
    if not path.endswith("/") or path == "/":
        return scope
    return {**scope, "path": path.rstrip("/") or "/"}  # a copy: the server goes by its own


def allowed_methods(routes: Sequence[BaseRoute], scope: Scope) -> list[str]:
    """Returns the methods of all routes with a path; empty: there is none. Where there is GET there is HEAD."""
    found: set[str] = set()
    for route in routes:
        if route.matches(scope)[0] is not Match.NONE:
            found.update(getattr(route, "methods", None) or ())
    if "GET" in found:
        found.add("HEAD")
    return sorted(found | {"OPTIONS"}) if found else []


class CommonMethods:
    """Answers OPTIONS, and HEAD like GET, whose body the server leaves out.

    Args:
        app: Answers everything else.
        routes: Its routes.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "http":
            if scope["method"] == "HEAD":
                scope = {**scope, "method": "GET"}  # a copy: the server goes by its own
            elif scope["method"] == "OPTIONS" and (methods := allowed_methods(self._routes, scope)):
                await options(methods)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def options(methods: Sequence[str]) -> Response:
    """Answers OPTIONS."""
    return Response(status_code=204, headers={"Allow": ", ".join(methods)})
