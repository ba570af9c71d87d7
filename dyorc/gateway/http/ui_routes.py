"""``/ui``: the live page. It needs no key: a browser can enter one only on a page that it has loaded. Its data do."""

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from dyorc.gateway.ui.ui_files import START, UiFile, policy, ui_files
from dyorc.protocol.api_paths import UI

TO_PAGE = Response(status_code=302, headers={"Location": f"{UI[1:]}/", "Vary": "Accept"})


def asks_for_page(scope: Scope) -> bool:
    """Returns whether a browser opens ``/``. It has no key yet."""
    return scope["path"] == "/" and any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def add_ui_routes(app: FastAPI) -> None:
    """Adds ``/ui/`` and the files that the page loads."""

    @app.get(UI, include_in_schema=False)
    async def page(request: Request) -> Response:
        if not request.scope["raw_path"].endswith(b"/"):  # the page's links are relative, so that a proxy may put it below a path
            return Response(status_code=308, headers={"Location": "ui/"})
        return _answer(request, ui_files()[START])

    @app.get(f"{UI}/{{path:path}}", include_in_schema=False)
    async def file(request: Request, path: str) -> Response:
        found = ui_files().get(path)
        if found is None:
            raise HTTPException(404)
        return _answer(request, found)


def _answer(request: Request, file: UiFile) -> Response:
    """Returns a file, or just that it has not changed."""
    headers = {
        "Content-Security-Policy": policy(),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",  # kept, but asked for each time: another version of the server has other files
        "ETag": file.tag,
        "Vary": "Accept-Encoding",
    }
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    body = file.body
    if "gzip" in request.headers.get("accept-encoding", ""):
        body = file.packed
        headers["Content-Encoding"] = "gzip"
    return Response(body, headers=headers, media_type=file.media_type)
