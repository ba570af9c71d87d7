"""`dyorc deploy` beside another one: it says what it waits for, and both go on without their clients."""

import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import typer
from typer.testing import CliRunner

import dyorc
from dyorc.cli.deploy import deploy
from dyorc.testing import serving
from tests.deadlines import TIMEOUT_S, wait_until

versions = typer.Typer()
versions.command()(deploy)

_APP = """
import time
from pathlib import Path
import numpy as np
from jaxtyping import Float
import dyorc
{head}
@dyorc.program
def scale(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return {factor} * x

@dyorc.workflow
async def flow(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return scale(x)
"""


@contextmanager
def started(arguments: Sequence[str]) -> Generator["subprocess.Popen[str]"]:
    """Runs a command, which is killed at the end."""
    command = [sys.executable, "-P", "-m", "dyorc.cli.main", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_deploy_says_what_it_waits_for_and_goes_on_without_its_client(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def write(name: str, factor: int, head: str = "") -> str:
        (tmp_path / name).write_text(_APP.format(factor=factor, head=head))
        return f"{tmp_path / name}:flow"

    with serving(write("app.py", 1), in_process=True) as server, dyorc.Client(server.url) as client:
        slow = write("slow.py", 2, f"while not Path({str(gate)!r}).exists(): time.sleep(0.01)")
        after = write("after.py", 3)
        assert client.status()["deploying"] is None
        with started(["deploy", slow, "--url", server.url]):
            wait_until(lambda: client.status()["deploying"] is not None, "the first deploy has begun")
            assert client.status()["deploying"]["change"] == "the deploy of slow.py:flow"
        with started(["deploy", after, "--url", server.url]) as waiting:
            assert waiting.stderr is not None
            said = waiting.stderr.readline()
            assert said.startswith("Waiting for the deploy of slow.py:flow, since "), said
            assert said.endswith(". It goes on even if its client has left, and so does this one.\n")
            shown = CliRunner().invoke(versions, ["--url", server.url])
            assert "the deploy of slow.py:flow, since " in shown.output
            gate.touch()
            assert waiting.wait(TIMEOUT_S) == 0, waiting.stderr.read()
        assert [version["target"] for version in client.deployments()["flow"]["versions"].values()][1:] == [slow, after]
        assert client.status()["deploying"] is None
        np.testing.assert_array_equal(client.infer("flow", x=np.ones(2, np.float32)), [3, 3])
