"""Makes a `Target` from a `TargetSpec`."""

import importlib
from typing import cast

from loadgen.pool import Pool
from loadgen.targets.base import MakeTarget, Target, TargetSpec


def open_target(spec: TargetSpec, pool: Pool) -> Target:
    """Returns the target that a spec names. Enter it in a running event loop.

    Raises:
        ValueError: If there is no such protocol, or if it cannot send the pool.
    """
    match spec.protocol:
        case "http":
            from loadgen.targets.http import HttpTarget

            return HttpTarget(spec, pool)
        case "grpc":
            from loadgen.targets.grpc import GrpcTarget  # gRPC is slow to import

            return GrpcTarget(spec, pool)
        case "raw":
            from loadgen.targets.raw import RawTarget

            return RawTarget(spec, pool)
        case _:
            return _function(spec.protocol)(spec, pool)


def _function(path: str) -> MakeTarget:
    module, colon, name = path.partition(":")
    if not colon:
        raise ValueError(f"the protocol is {path!r}, expected http, grpc, raw or package.module:function")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the protocol {path!r} cannot be imported: {error}") from error
    if not callable(function):
        raise ValueError(f"{path} is a {type(function).__name__}, expected a function (spec, pool) -> Target")
    return cast(MakeTarget, function)
