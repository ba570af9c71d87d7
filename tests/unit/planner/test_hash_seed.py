"""Sets of texts have another order in each process of Python. A plan may not depend on it."""

import os
import subprocess
import sys

import pytest

_PLANNERS = "3f1b coshard dp_even duplex_hap hap hidup interlaced joint megatron parameter_server pipeline tag tessel zero"
_DIGESTS = """
from dyorc.errors import PlanError
from dyorc.planner.cluster import uneven_cluster
from dyorc.planner.plan.plan_file import digest_of
from dyorc.planner.planners import PLANNERS
from tests.unit.planner.examples import example

program, cluster = example("bert_moe").program, uneven_cluster((1.0, 0.6), flops_per_s=1e9, bytes_per_s=1e9)
for name in "%s".split():
    try:
        print(name, digest_of(PLANNERS[name](program, cluster)))
    except PlanError as error:
        print(name, error)
"""


@pytest.mark.real  # two processes that import torch and plan
def test_plans_do_not_depend_on_the_hash_seed() -> None:
    command = [sys.executable, "-c", _DIGESTS % _PLANNERS]
    processes = [
        subprocess.Popen(command, env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True) for seed in "12"
    ]
    first, second = (process.communicate(timeout=250)[0].splitlines() for process in processes)
    assert len(first) == len(_PLANNERS.split())
    assert first == second
