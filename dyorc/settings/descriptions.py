"""What the docstrings below the settings say, for whoever writes it down."""

import ast
import functools
import inspect
from itertools import pairwise

from pydantic import BaseModel

from dyorc import config


@functools.cache
def describe() -> None:
    """Gives the settings' fields their docstrings as descriptions.

    pydantic can do that when it makes the classes (`use_attribute_docstrings`). It takes two thirds of the time of importing
    them then, in every process, and few need it.
    """
    for node in ast.parse(inspect.getsource(config)).body:
        model = getattr(config, node.name) if isinstance(node, ast.ClassDef) else None
        if isinstance(node, ast.ClassDef) and isinstance(model, type) and issubclass(model, BaseModel):
            for above, below in pairwise(node.body):
                match above, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        model.model_fields[name].description = inspect.cleandoc(text)
                    case _:
                        pass
            model.model_rebuild(force=True)
