import inspect
import re

from dyorc import errors


def _drawn_parents() -> dict[str, str]:
    """The parent of each class in the drawing at the top of `dyorc/errors.py`."""
    parents, ancestors = {}, ["DyOrcError"]
    for branches, name in re.findall(r"^ {4}((?:\|  |   )*)[|`]- *(\w+)", errors.__doc__ or "", re.MULTILINE):
        depth = len(branches) // 3 + 1
        del ancestors[depth:]
        parents[name] = ancestors[-1]
        ancestors.append(name)
    return parents


def test_the_drawing_of_the_errors_shows_each_class_under_its_base() -> None:
    classes = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if cls.__module__ == errors.__name__]
    bases = {cls.__name__: cls.__bases__[0].__name__ for cls in classes if issubclass(cls, errors.DyOrcError)}
    del bases["DyOrcError"]
    assert _drawn_parents() == bases
