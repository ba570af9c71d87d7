"""A model of another server: one that speaks the Open Inference Protocol (DyOrc, Triton, KServe), or takes and returns JSON."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import dyorc
from dyorc.errors import DefinitionError
from dyorc.programs.declaring import annotations_of, declare
from dyorc.programs.protocol_models import protocol_model


def http(
    url: str,
    signature: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
    max_attempts: int = 4,
    max_ongoing: int = 32,
    **options: Any,
) -> dyorc.Program:
    """Returns a program that asks another server.

    With the URL of a model, ``http://HOST/v2/models/NAME``, it speaks the Open Inference Protocol, and its tensors are those of
    the model's metadata, which is read once, now. Any other URL gets a POST of JSON, an object with a key for each parameter of
    `signature`, whose values are structured; the JSON of the answer is checked against what `signature` returns.

    A failure is the program's, and names DyOrc's error: `CapacityError` for 429 and 503, `DeadlineError`, `TransportError`.

    Args:
        signature: A function with the annotations of the JSON; its body is of no interest.
        name: By default, that of the model, or of `signature`.
        api_key: Sent as ``Authorization: Bearer``.
        headers: Sent with each request of JSON.
        timeout_s: How long a call may take, all attempts together.
        max_attempts: How many times a request is sent to a server that has no room or cannot be reached.
        max_ongoing: How many calls it gets at once from a replica.
        options: Of `dyorc.program`.

    Raises:
        DefinitionError: If there is neither a model nor a signature, or the model has types that DyOrc does not have.
        DyOrcError: If the metadata cannot be read.
    """
    options |= {"batched": False, "max_ongoing": max_ongoing}
    base, is_model, model = url.rstrip("/").partition("/v2/models/")
    if is_model and signature is None:
        return protocol_model(base, unquote(model), name, api_key, timeout_s, max_attempts, options)
    if signature is None:
        raise DefinitionError(f"dyorc.programs.http: {url} is not that of a model, http://HOST/v2/models/NAME; give a signature")
    name = name or signature.__name__
    inputs, output = annotations_of(f"program {name!r}", signature)
    sent = {**(headers or {}), **({"Authorization": f"Bearer {api_key}"} if api_key else {})}

    def load() -> Callable[..., Any]:
        remote = importlib.import_module("dyorc.programs.remote_service")
        to_json = importlib.import_module("pydantic_core").to_jsonable_python
        limits = {"timeout_s": timeout_s, "max_attempts": max_attempts, "max_connections": max_ongoing}
        service = remote.RemoteService(url, headers=sent, **limits)

        async def compute(**values: Any) -> Any:
            return await service.post("", to_json(values))

        return compute

    return declare(name, inputs, output, load, is_async=True, **options)
