"""A case as a Python file: its source, then its requests."""

import ast
from pathlib import Path

import numpy as np

from tests.random_workflows.cases import Case, Request

_HEAD = "# Run it: python -m tests.random_workflows --case THIS_FILE --modes {modes}"


def text_of(case: Case, mode: str) -> str:
    """Returns a case as Python code; vectors as the bytes of their float32."""
    requests = [(each.x.tobytes().hex(), each.ticket, dict(each.statics)) for each in case.requests]
    lines = "".join([f"    {each!r},\n" for each in requests])
    return f"{_HEAD.format(modes=mode)}\n{case.source.strip()}\n\n\nCASE = {case.name!r}\nREQUESTS = [\n{lines}]\n"


def read(file: Path) -> Case:
    """Reads what `text_of` wrote."""
    tree = ast.parse(file.read_text())
    *_, name, requests = tree.body
    assert isinstance(name, ast.Assign)
    assert isinstance(requests, ast.Assign)
    source = ast.unparse(ast.Module(tree.body[:-2], []))
    vectors = [
        Request(np.frombuffer(bytes.fromhex(x), np.float32), ticket, statics)
        for x, ticket, statics in ast.literal_eval(requests.value)
    ]
    return Case(ast.literal_eval(name.value), source, tuple(vectors))
