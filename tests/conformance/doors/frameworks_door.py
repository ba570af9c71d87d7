"""LiteLLM and LangChain, in an environment of their own."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.conformance.doors.doors import HERE, ROOT, Addresses, Door, rows_of
from tests.conformance.rows import Row

_PYTHON = ROOT / ".venv-clients" / "frameworks" / "bin" / "python"


def _find_missing() -> str:
    return "" if _PYTHON.exists() else "the environment of LiteLLM and LangChain"


def _check(name: str, framework: str, addresses: Addresses, folder: Path) -> Iterator[Row]:
    command = [str(_PYTHON), "-P", str(HERE / "llm_frameworks.py"), framework, addresses.http]
    yield from rows_of(name, command, {"PYTHONPATH": ""}, folder)


def _door(name: str, framework: str) -> Door:
    return Door(name, _find_missing, partial(_check, name, framework))


LITELLM = _door("LiteLLM", "litellm")
LANGCHAIN = _door("LangChain: ChatOpenAI", "langchain")
