"""Groups of options that several commands share.

typer reads a command's options from its signature, so each command would have to repeat them. Here a group is a frozen dataclass
whose fields have typer's annotations, and `grouped` shows typer the fields in place of the group.
"""

import inspect
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints

Command = Callable[..., None]


def group_options(command: Command) -> Command:
    """Returns a command in which each parameter that is a dataclass is replaced by the dataclass's fields.

    Raises:
        TypeError: If two options have the same name.
    """
    hints = get_type_hints(command, include_extras=True)
    shown: dict[str, inspect.Parameter] = {}
    groups: dict[str, tuple[type, Collection[str]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not is_dataclass(kind):
            own = {name: parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY)}
        else:
            kinds = get_type_hints(kind, include_extras=True)
            own = {field.name: _parameter(field, kinds[field.name]) for field in fields(kind)}
            assert isinstance(kind, type)
            groups[name] = (kind, own.keys())
        if twice := shown.keys() & own.keys():
            raise TypeError(f"{command.__qualname__} has the option {sorted(twice)[0]!r} twice")
        shown |= own

    def run(**values: Any) -> None:
        whole = {name: kind(**{field: values.pop(field) for field in names}) for name, (kind, names) in groups.items()}
        command(**values, **whole)

    run.__name__, run.__qualname__, run.__doc__ = command.__name__, command.__qualname__, command.__doc__
    run.__annotations__ = {name: parameter.annotation for name, parameter in shown.items()}
    run.__dict__["__signature__"] = inspect.Signature(list(shown.values()))
    return run


def _parameter(field: "Field[Any]", kind: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
