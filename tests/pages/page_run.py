"""Runs a page from its first block to its last, in one namespace and one folder."""

import ast
import asyncio
import contextlib
import importlib.util
import inspect
import io
import shutil
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tests.markdown import PYTHON, SHELL, Block, blocks, page_markers
from tests.pages.commands import PageError, Terminal, check_output, commands, run_command


def run_page(page: Path, folder: Path) -> int:
    """Runs a page's blocks in an empty folder, and returns how many ran.

    Raises:
        PageError: If a block does not do what the page says.
    """
    for file_page in _pages_before(page):
        for block in blocks(file_page):
            _write_titled(block, folder)
    with contextlib.chdir(folder), asyncio.Runner() as runner:
        run = _PageRun(folder, runner)
        try:
            for block in blocks(page):
                run.block(block)
        finally:
            run.stop_terminals()
    return run.num_run


def needs_server(page: Path) -> bool:
    """Whether a page starts servers, or says that it takes long."""
    return "long" in page_markers(page) or any("background" in block.markers for block in blocks(page))


def _pages_before(page: Path) -> Iterator[Path]:
    """Yields the pages whose files a reader of this page has already, the earliest first."""
    if name := page_markers(page).get("files of"):
        earlier = page.parent / name
        yield from _pages_before(earlier)
        yield earlier


def _write_titled(block: Block, folder: Path) -> None:
    if block.title is not None and "not run" not in block.markers:
        path = folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code)


class _PageRun:
    """The state between two blocks: names of Python, the last output, and open terminals."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self.num_run = 0
        self._folder = folder
        self._runner = runner
        self._module = ModuleType("__main__")
        self._output = ""
        self._terminals: list[Terminal] = []
        sys.modules["__main__"] = self._module  # as in a notebook, so that classes can be looked up by their module
        sys.path.insert(0, str(folder))

    def block(self, block: Block) -> None:
        """Runs, writes or compares a block, or leaves it out."""
        if "stop" in block.markers:
            self.stop_terminals()
        if block.title is not None:
            _write_titled(block, self._folder)
        elif "output" in block.markers:
            if _has_all(block.markers.get("needs", "")):  # or else the block before was not run either
                check_output(block, block.code, self._output)
        elif block.runs and "not run" not in block.markers and _has_all(block.markers.get("needs", "")):
            self.num_run += 1
            self._run(block)

    def _run(self, block: Block) -> None:
        if block.language in PYTHON:
            self._output = self._python(block)
        elif block.language in SHELL:
            for command in commands(block):
                if "background" in block.markers:
                    log = self._folder.parent / f"terminal-{len(self._terminals)}.log"
                    self._terminals.append(Terminal(block, command, self._folder, log))
                    self._terminals[-1].wait()
                else:
                    self._output = run_command(block, command, self._folder)

    def _python(self, block: Block) -> str:
        """Runs a block as a notebook does: it may await, and its lines are the page's lines in tracebacks."""
        source = "\n" * (block.line - 1) + block.code
        printed = io.StringIO()
        expected = block.markers.get("raises")
        try:
            code = compile(source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            with contextlib.redirect_stdout(printed):
                if code.co_flags & inspect.CO_COROUTINE:
                    self._runner.run(_awaited(eval(code, vars(self._module))))
                else:
                    exec(code, vars(self._module))
        except Exception as error:
            if type(error).__name__ != expected:
                raise PageError(f"{block.place}: {traceback.format_exc()}") from error
            return f"{printed.getvalue()}{type(error).__name__}: {error}\n"
        if expected is not None:
            raise PageError(f"{block.place}: expected {expected}, nothing was raised")
        return printed.getvalue()

    def stop_terminals(self) -> None:
        """Ends the servers, the last one first."""
        while self._terminals:
            self._terminals.pop().stop()


async def _awaited(value: object) -> None:
    if inspect.isawaitable(value):
        await value


def _has_all(names: str) -> bool:
    """Whether this machine has the commands and Python's modules that a block needs."""
    return all(shutil.which(name) or importlib.util.find_spec(name) for name in names.replace(",", " ").split())
