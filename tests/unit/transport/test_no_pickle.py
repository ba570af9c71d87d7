"""Nothing is pickled on any wire, in shared memory, or elsewhere in the package: unpickling runs whatever code the sender
chooses.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dyorc

_FILES = sorted(Path(dyorc.__file__).parent.rglob("*.py"))
_MODULES = frozenset(
    {"pickle", "_pickle", "cPickle", "pickletools", "cloudpickle", "dill", "marshal", "shelve", "joblib", "multiprocessing"}
)
"""Modules that pickle; the last one for its queues, pipes and connections."""

_NAMES = frozenset({"send_pyobj", "recv_pyobj", "send_serialized", "recv_serialized", "ProcessPoolExecutor", "__reduce__"})
_FLAGS = {"allow_pickle": False, "weights_only": True}
"""Arguments by which loading is safe."""

_PACKAGE = Path(dyorc.__file__).parent
_EXEMPT = {_PACKAGE / "simulation" / "simulate.py": {"ProcessPoolExecutor", "multiprocessing"}}
"""`dyorc simulate` spreads runs over processes that it starts. It serves no client, and no tensor passes there."""


def pickling(source: str) -> Iterator[str]:
    """Returns each place in a file's text that pickles or may unpickle, as a line for people."""
    for node in ast.walk(ast.parse(source)):
        for what in _found(node):
            yield f"line {getattr(node, 'lineno', '?')}: {what}"


def _found(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (name.name for name in names if name.name.split(".")[0] in _MODULES)
        case ast.ImportFrom(module=module, names=names):
            module = module or ""
            if _MODULES & set(module.split(".")) or (module == "torch" and any(n.name == "load" for n in names)):
                yield module
            yield from (f"{module}.{name.name}" for name in names if name.name in _MODULES)
        case ast.Call(func=function, keywords=keywords):
            yield from _unsafe_call(ast.unparse(function), {str(keyword.arg): keyword.value for keyword in keywords})
        case ast.Constant(value=str(text)) if text in _MODULES:
            yield f"{text!r}, which may be imported by its name"
        case ast.Attribute(attr=name) | ast.alias(name=name) if name in _NAMES:
            yield name
        case _:
            pass


def _unsafe_call(function: str, arguments: dict[str, ast.expr]) -> Iterator[str]:
    """Reports loading functions that do not say that they do not unpickle, whatever their defaults are, or say the contrary."""
    owner, _, name = function.rpartition(".")
    wanted = {"np": "allow_pickle", "numpy": "allow_pickle", "torch": "weights_only"}.get(owner) if name == "load" else None
    if wanted is not None and wanted not in arguments:
        yield f"{function} without {wanted}={_FLAGS[wanted]}"
    for flag, safe in _FLAGS.items():
        value = arguments.get(flag)
        if value is not None and not (isinstance(value, ast.Constant) and value.value is safe):
            yield f"{function} with {flag}={ast.unparse(value)}"
    if function in ("np.save", "numpy.save") and "allow_pickle" not in arguments:
        yield f"{function} without allow_pickle=False"


@pytest.mark.parametrize("file", _FILES, ids=lambda file: str(file.relative_to(_PACKAGE)))
def test_nothing_is_pickled(file: Path) -> None:
    found = [line for line in pickling(file.read_text()) if line.partition(": ")[2] not in _EXEMPT.get(file, ())]
    assert found == []


def test_all_files_are_checked() -> None:
    assert {"outbox.py", "inbox.py", "worker.py", "serve_replicas.py"} <= {file.name for file in _FILES}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, cloudpickle as c",
        "from pickle import loads",
        "from joblib.externals import cloudpickle",
        "from ray import cloudpickle",
        "import multiprocessing.connection",
        "from multiprocessing import Queue",
        "import_module('dill')",
        "x = np.load(file)",
        "x = np.load(file, allow_pickle=True)",
        "x = np.load(file, allow_pickle=flag)",
        "np.save(file, x)",
        "x = torch.load(file)",
        "x = torch.load(file, weights_only=False)",
        "from torch import load",
        "from concurrent.futures import ProcessPoolExecutor",
        "socket.send_pyobj(x)",
        "x = await socket.recv_pyobj()",
        "class A:\n    def f(self):\n        return marshal and self.__reduce__()",
    ],
)
def test_everything_that_pickles_is_found(source: str) -> None:
    assert len(list(pickling(source))) >= 1


@pytest.mark.parametrize(
    "source",
    ["x = np.load(file, allow_pickle=False)", "x = torch.load(file, weights_only=True)", "json.load(file)", "pickled = 1"],
)
def test_code_that_does_not_pickle_is_accepted(source: str) -> None:
    assert list(pickling(source)) == []
