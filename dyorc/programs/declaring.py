"""Makes programs whose signature is known only when they are made: from a file, a server, or another function."""

import importlib
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

import dyorc
from dyorc.errors import DefinitionError, MissingLibraryError


def declare(
    name: str,
    inputs: Mapping[str, Any],
    output: Any,
    load: Callable[[], Callable[..., Any]],
    *,
    is_async: bool = False,
    **options: Any,
) -> dyorc.Program:
    """Returns a program.

    Args:
        inputs: The annotation of each parameter.
        output: The annotation of what it returns.
        load: Makes what computes, once per replica. That is called with values by name.
        is_async: Whether that returns something to be awaited.
        options: Of `dyorc.program`.

    Raises:
        DefinitionError: If they do not make a program.
    """

    def compute(self: Any, **values: Any) -> Any:
        return self.compute(**values)

    async def wait(self: Any, **values: Any) -> Any:
        return await self.compute(**values)

    function = wait if is_async else compute
    parameters = [inspect.Parameter(each, inspect.Parameter.POSITIONAL_OR_KEYWORD) for each in ("self", *inputs)]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {**inputs, "return": output}

    class Declared:
        def __init__(self) -> None:
            self.compute = load()

        __call__ = function

    return dyorc.program(name=name, **options)(Declared)()


def annotations_of(owner: str, function: Callable[..., Any]) -> tuple[dict[str, Any], Any]:
    """Returns the annotations of a function's parameters, without ``self``, and of what it returns.

    Raises:
        DefinitionError: If one is missing.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    if missing := [name for name in (*names, "return") if name not in hints]:
        raise DefinitionError(
            f"{owner}: {function.__qualname__} has no annotation for {', '.join(missing)}; expected one for each parameter "
            f'and for what it returns, such as Float[Tensor, "batch 10"]'
        )
    return {name: hints[name] for name in names}, hints["return"]


def import_library(module: str, owner: str, command: str) -> Any:
    """Returns a library.

    Raises:
        MissingLibraryError: If it is not installed; says what installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        library = str(error.name)
        raise MissingLibraryError(f"{owner} needs {library}, which is not installed: {command}", name=library) from None
