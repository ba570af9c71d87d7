"""However a script ends that has ranks, their folder and their processes go with it."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.deadlines import wait_until

_SCRIPT = """
import os, signal, sys
from dyorc.planner.runtime import RankOptions, Ranks

ranks = Ranks(RankOptions(num_ranks=2, device="cpu"))
ranks.start()
print(*ranks.pids, flush=True)
{end}
"""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(_SCRIPT.format(end="os.kill(os.getpid(), signal.SIGTERM)"), id="SIGTERM"),
        pytest.param(_SCRIPT.format(end="os.kill(os.getpid(), signal.SIGKILL)"), id="SIGKILL"),
        pytest.param(_SCRIPT.format(end="sys.exit(0)"), id="sys.exit without stop"),
        pytest.param(_SCRIPT.format(end="raise ValueError"), id="an exception without stop"),
    ],
)
def test_an_ended_script_leaves_nothing(script: str, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    pids = [int(pid) for pid in ended.stdout.split()]
    assert len(pids) == 2, ended.stderr
    wait_until(lambda: all(map(_has_ended, pids)), "the ranks have ended")
    wait_until(lambda: not list(tmp_path.glob("dyorc-ranks-*")), "their folder is removed")


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
