"""The pages for browsers: ``/ui``, the live page, and ``/docs``, the API's description. They load nothing from other servers.

They need no key: a browser can enter one only on a page that it has loaded. The live page's data need one.
"""

from importlib.metadata import distribution
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.types import Scope

from dyorc.gateway.http.heads import accepts
from dyorc.gateway.ui.ui_files import START, UiFile, policy, ui_files
from dyorc.protocol.api_paths import UI

TO_PAGE = Response(status_code=302, headers={"Location": f"{UI[1:]}/", "Vary": "Accept"})


def asks_for_page(scope: Scope) -> bool:
    """Returns whether a browser opens ``/``. It has no key yet."""
    return scope["path"] == "/" and any(name == b"accept" and accepts(b"text/html", value) for name, value in scope["headers"])


def add_ui_routes(app: FastAPI) -> None:
    """Adds ``/ui/`` and the files that the page loads."""

    @app.get(UI, include_in_schema=False)
    async def page(request: Request) -> Response:
        if not request.scope["raw_path"].endswith(b"/"):  # the page's links are relative, so that a proxy may put it below a path
            return Response(status_code=308, headers={"Location": "ui/"})
        return _answer(request, ui_files()[START])

    @app.get(f"{UI}/{{path:path}}", include_in_schema=False)
    async def file(request: Request, path: str) -> Response:
        ui_file = ui_files().get(path)
        if ui_file is None:
            raise HTTPException(404)
        return _answer(request, ui_file)


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


_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Swagger UI sets inline styles, but needs no inline scripts."""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>DyOrc</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="api"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = 'SwaggerUIBundle({url: "openapi.json", dom_id: "#api", validatorUrl: null, deepLinking: true});\n'

_PACKAGE = "fastapi-swagger"
_FILES = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}


def add_docs_routes(app: FastAPI) -> None:
    """Adds ``/docs`` and the files it loads."""
    headers = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    folder = Path(str(distribution(_PACKAGE).locate_file("fastapi_swagger/resources")))

    @app.get("/docs", include_in_schema=False)
    async def page(request: Request) -> Response:
        if request.scope["raw_path"].endswith(b"/"):  # the page's links are relative, so that a proxy may put it below a path
            return Response(status_code=308, headers={"Location": "../docs"})
        return HTMLResponse(_PAGE, headers=headers)

    @app.get("/docs/start.js", include_in_schema=False)
    async def start() -> Response:
        return Response(_START, media_type="text/javascript", headers=headers)

    def add_file(name: str, media_type: str) -> None:
        @app.get(f"/docs/{name}", include_in_schema=False)
        async def file() -> Response:
            return FileResponse(folder / name, media_type=media_type, headers=headers)

    for name, media_type in _FILES.items():
        add_file(name, media_type)
