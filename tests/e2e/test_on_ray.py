"""What most tests try without Ray, once on Ray: the first example as its page shows it, and the whole protocol."""

import re
import subprocess
import sys

import pytest

from tests.conformance.servers import TRITONCLIENT, failures
from tests.e2e.demos import run_demo
from tests.leaks import no_leaks

pytestmark = pytest.mark.ray


def test_digits_demo_serves_the_cascade_and_reads_the_held_out_digits() -> None:
    shown = run_demo("digits", "large.safetensors")
    found = re.search(r"597 held-out digits over HTTP: (\S+)% right\n(\d+) \(", shown)
    assert found is not None, shown
    assert float(found[1]) > 93
    assert 100 < int(found[2]) < 400, "some digits took the large net, most did not"
    assert "server | Starting a local Ray" in shown
    assert "server | Stopped." in shown


@pytest.mark.slow
@pytest.mark.skipif(not TRITONCLIENT.exists(), reason="tritonclient has no environment; `make test` makes it")
def test_every_promise_of_the_protocol_is_kept() -> None:
    with no_leaks():
        found = failures("main")
    assert not found, "\n".join(found)


def test_replicas_are_parked_warmed_and_scaled_to_zero_while_clients_send() -> None:
    with no_leaks():
        ran = subprocess.run([sys.executable, "-m", "tests.e2e.life_cycle_process"], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "answered" in ran.stdout.splitlines()
