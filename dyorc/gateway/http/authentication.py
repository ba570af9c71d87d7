"""Finds a request's tenant and checks its rights, once, before any route sees the request and before its body is read.

Health routes need no key: load balancers have none, and the routes reveal only that the server is there. The description of the
API and the live page need none either: a browser can enter a key only on a page it has loaded, and their files are the same on
every server of this version. Everything else needs one. A tenant that may use only some models learns nothing about others. It
may use a route that belongs to no model only if that shows just its own models; a new route is closed to it until it is listed
here.
"""

from collections.abc import Iterable

from starlette.types import Scope, Send

from dyorc.errors import AuthenticationError, DyOrcError
from dyorc.gateway.access import Access
from dyorc.gateway.http.inference_answers import write_error
from dyorc.gateway.http.middleware import TENANT, ids_of
from dyorc.gateway.tenants import ANONYMOUS, Tenant
from dyorc.protocol.api_paths import (
    ALSO_READY,
    HEALTH,
    JOBS,
    LIVE_EVENTS,
    LIVE_GRAPH,
    LIVE_HISTORY,
    LIVE_NOW,
    MCP,
    MODELS,
    REPOSITORY_INDEX,
    REQUESTS,
    RUN_MODEL,
    SERVER,
    STATISTICS,
    TAIL,
    TRACE,
    UI,
    is_openai,
)
from dyorc.protocol.header_names import API_KEY, AUTHORIZATION, Header

_OPEN = frozenset({"/docs", "/openapi.json", UI, ALSO_READY})
_OPEN_FOLDERS = (f"{HEALTH}/", "/docs/", f"{UI}/")
_MODELS = f"{MODELS}/"

_LISTS = frozenset(
    {"/", SERVER, MODELS, STATISTICS, REPOSITORY_INDEX, LIVE_NOW, LIVE_EVENTS, LIVE_HISTORY, LIVE_GRAPH, TAIL, TRACE, MCP}
)
"""Routes that reveal only a tenant's own models and requests, or none at all."""

_AUTHORIZATION, _API_KEY = AUTHORIZATION.encode(), API_KEY.encode()
CHALLENGE: Header = (b"www-authenticate", b'Bearer realm="dyorc"')


def authenticate(access: Access, scope: Scope) -> Tenant:
    """Returns a request's tenant, and sets ``scope[TENANT]``.

    Raises:
        AuthenticationError: If it needs a key, and has none or a wrong one.
        PermissionDeniedError: If its tenant may not send it.
    """
    path: str = scope["path"]
    is_open = access.is_open or path in _OPEN or path.startswith(_OPEN_FOLDERS)
    tenant = ANONYMOUS if is_open else access.tenant_of(key_in(scope["headers"]))
    if tenant.models is not None:
        _check_path(tenant, path)
    scope[TENANT] = tenant
    return tenant


def key_in(headers: Iterable[Header]) -> str | None:
    """Returns the API key of a request: ``Authorization: Bearer KEY``, or ``X-API-Key: KEY``."""
    for name, value in headers:
        if name == _AUTHORIZATION:
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer":
                return key.strip().decode("latin-1")
        elif name == _API_KEY:
            return value.decode("latin-1")
    return None


async def refuse(scope: Scope, send: Send, error: DyOrcError) -> None:
    await write_error(send, error, ids_of(scope), [CHALLENGE] if isinstance(error, AuthenticationError) else ())


def _check_path(tenant: Tenant, path: str) -> None:
    if path in _LISTS or path.startswith((JOBS, REQUESTS)):  # jobs and requests are looked up among the tenant's own
        return
    if is_openai(path) or path.startswith(f"{RUN_MODEL}/"):
        return  # the model of a request is checked where it is looked up
    if path.startswith(_MODELS):
        tenant.check_model(path[len(_MODELS) :].partition("/")[0])
    else:
        tenant.check_common(path)
