"""Runs the blocks of a documentation's page (`page_blocks`), as a reader would: ``python -m tests.run_page PAGE FOLDER``.

It runs in a network namespace of its own (`command`), so that pages may say port 8000 to everybody. It prints each block that
runs; the first one that fails, or prints something else than the page shows, ends it with status 1.
"""

import contextlib
import io
import linecache
import os
import re
import shlex
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

from dyorc.testing import ServerProcess
from tests.page_blocks import Block, blocks_of, difference

_ROOT = Path(__file__).parents[1]
_SERVER = re.compile(r"(\w+=\S+ )*dyorc (serve|dev) ")
_COLUMNS = "100"
_BLOCK_TIMEOUT_S = 240.0
_READY_TIMEOUT_S = 240.0


def command(page: Path, folder: Path) -> list[str]:
    """Returns the command that runs a page in a network of its own, where only loopback is.

    Raises:
        RuntimeError: If this machine lets nobody make one.
    """
    unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        raise RuntimeError("pages run in a network namespace, which needs `unshare` and the right to make one")
    run = shlex.join([sys.executable, "-m", "tests.run_page", str(page), str(folder)])
    return [*unshare, "sh", "-c", f"ip link set lo up && exec {run}"]


class PageFailed(Exception):
    """A block failed, or printed something else than the page shows."""


class PageRun:
    """Runs blocks one after the other, in one folder, interpreter and shell environment; holds the server that runs."""

    def __init__(self, page: Path) -> None:
        self._page = page
        self._names: dict[str, object] = {"__name__": "__page__"}
        self._environment = Path("../environment.sh").resolve()
        self._environment.touch()
        self._server = contextlib.ExitStack()

    def run(self) -> None:
        """Runs the whole page.

        Raises:
            PageFailed: At the first block that fails.
        """
        with self._server:
            for block in blocks_of(self._page):
                self._run(block)

    def _run(self, block: Block) -> None:
        place = f"{self._page.name}:{block.line}"
        if block.not_run:
            print(f"{place}: not run, {block.not_run}", flush=True)
            return
        if block.language == "files of":
            for file in blocks_of(self._page.with_name(block.code)):
                if file.title:
                    self._write(file)
            return
        print(f"{place}: {block.title or block.code.splitlines()[0]}", flush=True)
        if block.title:
            self._write(block)
        elif block.language == "python":
            self._check(block, place, self._run_python(block, place))
        elif block.language == "sh" and _SERVER.match(block.code):
            self._check(block, place, self._serve(block.code))
        elif block.language == "sh":
            self._check(block, place, self._run_shell(block.code, place))

    def _write(self, block: Block) -> None:
        file = Path(block.title)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.code)

    def _check(self, block: Block, place: str, printed: str) -> None:
        print(printed, flush=True)
        if block.output is not None and (wrong := difference(block.output, printed)):
            raise PageFailed(f"{place}: {wrong}")

    def _run_python(self, block: Block, place: str) -> str:
        printed = io.StringIO()
        linecache.cache[place] = (len(block.code), None, block.code.splitlines(keepends=True), place)
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(block.code, place, "exec"), self._names)
        except BaseException:
            raise PageFailed(f"{place}: {traceback.format_exc()}\nafter it printed:\n{printed.getvalue()}") from None
        return printed.getvalue()

    def _run_shell(self, code: str, place: str) -> str:
        environment = shlex.quote(str(self._environment))
        script = f"set -eo pipefail\nsource {environment}\n{code}\nexport -p > {environment}\n"
        done = subprocess.run(
            ["bash", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_BLOCK_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise PageFailed(f"{place}: status {done.returncode} of\n{code}\nwhich printed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _serve(self, code: str) -> str:
        self._server.close()
        environment = shlex.quote(str(self._environment))
        command = ["bash", "-c", f"source {environment}\nexec env {code}"]
        server = self._server.enter_context(ServerProcess(command))
        server.wait_until_ready(_READY_TIMEOUT_S)
        return server.output


def main(page: Path, folder: Path) -> int:
    """Runs a page in an empty folder. Returns the exit status."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    os.environ |= {"PYTHONPATH": str(_ROOT), "COLUMNS": _COLUMNS, "NO_COLOR": "1", "XDG_STATE_HOME": str(folder.parent / "state")}
    os.chdir(folder)
    sys.path.insert(0, "")
    try:
        PageRun(page).run()
    except PageFailed as failure:
        print(failure, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
