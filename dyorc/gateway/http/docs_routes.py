"""``/docs``: the API's description for browsers. It loads nothing from other servers.

Swagger UI comes from the package `fastapi-swagger`, of which only the files are used. The page may load nothing else.
"""

from importlib.metadata import distribution
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import FileResponse, HTMLResponse, Response

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Swagger UI sets styles of its own in the page, but needs no scripts in it."""

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
