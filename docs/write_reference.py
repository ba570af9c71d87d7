"""Writes the pages of the reference that come from the code: commands, errors, routes of HTTP, and calls of gRPC.

    python docs/write_reference.py docs/reference

A test compares the pages with what this writes. The routes are those of a real server, which is started for it.
"""

import html
import inspect
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import typer
from typer.cli import get_docs_for_click

from dyorc import errors
from dyorc.cli import main as command_line
from dyorc.errors import DyOrcError
from dyorc.gateway.codec import http_errors
from dyorc.gateway.grpc import grpc_errors
from dyorc.testing import serving

_ROOT = Path(__file__).parents[1]
_HEAD = "Written by `make docs-reference` from {source}; change that.\n"
_BEFORE_REQUESTS = frozenset(
    {
        errors.CheckpointError,
        errors.ConfigurationError,
        errors.DefinitionError,
        errors.LaunchError,
        errors.LeadLostError,
        errors.MissingLibraryError,
        errors.ModuleImportError,
        errors.PlanError,
        errors.PlanRunError,
        errors.ProgramCaptureError,
    }
)
"""Errors that no request gets: raised where code is declared or planned, or when a server starts."""

_APP = """
import dyorc
import numpy as np
from jaxtyping import Float

@dyorc.workflow
async def echo(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return x
"""


def cli_page() -> str:
    """Returns the page of all commands, by typer's own writer."""
    command: Any = typer.main.get_command(command_line._app)  # pyright: ignore[reportPrivateUsage]
    context: Any = typer.Context(command, info_name="dyorc")
    text = html.unescape(get_docs_for_click(obj=command, ctx=context, name="dyorc", title="Commands"))
    text = re.sub(r"^```console\n\$ (.*)\n```$", r"    \1", text, flags=re.MULTILINE)
    head, _, rest = text.partition("\n\n")
    return f"{head}\n\n{_HEAD.format(source='the commands')}\n{rest.rstrip()}\n"


def errors_page() -> str:
    """Returns the page of errors: code, class, statuses, cause and cure."""
    classes = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, DyOrcError)]
    sent = sorted((kind for kind in classes if kind not in _BEFORE_REQUESTS), key=lambda kind: kind.code)
    before = sorted(_BEFORE_REQUESTS, key=lambda kind: kind.code)
    head = f"""# Errors

{_HEAD.format(source="`dyorc/errors.py`")}
An error has a `code`, a word that stays: in the JSON of HTTP's answers, in gRPC's trailing metadata (`dyorc-code`), and as
`error.code` in Python. The client raises the same class that the server raised; all are in `dyorc.errors`. *Again* says that the
same request may succeed later, and that our clients send it again by themselves. A code `http` is HTTP's own: there is no such
route, or not with this method.

| code | HTTP | gRPC | again |
|---|---|---|---|
"""
    rows = "".join(
        f"| [`{kind.code}`](#{kind.code}) | {http_errors.status_of(error)} | {grpc_errors.status_of(error).name} "
        f"| {'yes' if kind.retryable else ''} |\n"
        for kind, error in ((kind, kind.__new__(kind)) for kind in sent)  # constructors differ; only the class counts here
    )
    before_rows = "".join(f"| [`{kind.code}`](#{kind.code}) | `{kind.__name__}` |\n" for kind in before)
    return (
        f"{head}{rows}\nWithout a request, in your process or when a server starts:\n\n| code | class |\n|---|---|\n{before_rows}"
        "\n## Errors of requests\n\n"
        + "\n".join(map(_error_section, sent))
        + "\n## Errors without a request\n\n"
        + "\n".join(map(_error_section, before))
    )


def _error_section(kind: type[DyOrcError]) -> str:
    docstring = inspect.cleandoc(kind.__doc__ or "")
    cause = _one_line(docstring.partition("\n\n")[0])
    section = re.search(r"^Cure:\n((?: {4}.*\n?)+)", docstring, re.MULTILINE)
    if section is None:
        raise ValueError(f"the docstring of {kind.__name__} has no section 'Cure:', which says what its reader can do")
    cure = _one_line(section[1])
    parent = kind.__bases__[0]
    kin = f", a `{parent.__name__}`" if parent is not DyOrcError and issubclass(parent, DyOrcError) else ""
    return f"### `{kind.code}`\n\n`{kind.__name__}`{kin}. {cause}\n\n**Cure.** {cure}\n"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")


def grpc_page() -> str:
    """Returns the page of the gRPC service's calls and messages."""
    text = (_ROOT / "dyorc" / "protocol" / "inference.proto").read_text()
    service = re.search(r"^service (\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    assert service is not None
    calls = re.findall(r"((?: *//.*\n)*) *rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\);", service[2])
    rows = ""
    for comment, name, stream_in, given, stream_out, answer in calls:
        text_of_comment = _one_line(re.sub(r"^ *// ?", "", comment, flags=re.MULTILINE))
        rows += f"| `{name}` | {stream_in}`{given}` | {stream_out}`{answer}` | {text_of_comment} |\n"
    return f"""# Calls of gRPC

{_HEAD.format(source="`dyorc/protocol/inference.proto`")}
The service is `inference.{service[1]}`; a server describes itself by reflection. [gRPC](grpc.md) says how DyOrc uses it, and
[Errors](errors.md) lists its statuses.

| call | takes | answers | |
|---|---|---|---|
{rows}
## The protocol

```proto
{text.rstrip()}
```
"""


def http_page(description: Mapping[str, Any]) -> str:
    """Returns the page of HTTP's routes, from a server's OpenAPI description."""
    sections: dict[str, list[str]] = {}
    for path, item in sorted(description["paths"].items()):
        for verb, operation in item.items():
            tag = (operation.get("tags") or [path.split("/")[2]])[0]
            text = _one_line((operation.get("description") or operation.get("summary") or "").partition("\n\n")[0])
            statuses = ", ".join(status for status in operation["responses"] if status.startswith(("2", "3")))
            sections.setdefault(tag, []).append(f"| `{verb.upper()} {path}` | {text} | {statuses} |\n")
    tables = "".join(
        f"\n## {tag[:1].upper()}{tag[1:]}\n\n| route | | answers |\n|---|---|---|\n{''.join(rows)}"
        for tag, rows in sorted(sections.items())
    )
    return f"""# Routes of HTTP

{_HEAD.format(source="the server's own description")}
A server has this description at `/openapi.json` (OpenAPI {description["openapi"]}), with all fields, and shows it at `/docs`.
[HTTP](http.md) says how DyOrc uses the routes, and [Errors](errors.md) lists the codes.
{tables}"""


def served_description() -> dict[str, Any]:
    """Returns the OpenAPI description of a real server."""
    with tempfile.TemporaryDirectory() as folder:
        app = Path(folder) / "app.py"
        app.write_text(_APP)
        with serving(f"{app}:echo", "--grpc-port", "0", in_process=True) as server:
            return httpx.get(f"{server.url}/openapi.json").raise_for_status().json()


PAGES: Mapping[str, Callable[[], str]] = {"cli.md": cli_page, "errors.md": errors_page, "grpc-calls.md": grpc_page}
"""Pages that need no server, by their files' names."""


def main() -> None:
    folder = Path(sys.argv[1])
    for name, page in PAGES.items():
        (folder / name).write_text(page())
    (folder / "http-routes.md").write_text(http_page(served_description()))


if __name__ == "__main__":
    main()
