"""What FastAPI finds out about the routes of a gateway is kept: it takes 30 ms, and a run starts a dozen gateways."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import fastapi.routing


def keep_routes() -> None:
    """Keeps what FastAPI finds out of an endpoint's code and of the type of its answer."""
    routing: Any = fastapi.routing
    get_dependant, create_model_field = routing.get_dependant, routing.create_model_field
    dependants: dict[Any, Any] = {}
    fields: dict[Any, Any] = {}

    def kept_dependant(*, path: str, call: Callable[..., Any], scope: str | None = None) -> Any:
        key = path, getattr(call, "__code__", call), scope
        if key not in dependants:
            dependants[key] = get_dependant(path=path, call=call, scope=scope)
            assert not dependants[key].dependencies, "a dependency is a closure of one gateway, and cannot be kept"
        return replace(dependants[key], call=call, dependencies=[])

    def kept_field(name: str, type_: Any, mode: str = "validation") -> Any:
        key = name, type_, mode
        if key not in fields:
            fields[key] = create_model_field(name=name, type_=type_, mode=mode)
        return fields[key]

    routing.get_dependant, routing.create_model_field = kept_dependant, kept_field
