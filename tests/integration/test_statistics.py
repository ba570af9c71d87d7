"""The shell's statistics of models, over real links."""

import time

import numpy as np
import pytest

from dyorc.errors import InternalError
from tests.asking import submission
from tests.integration.stack import running
from tests.workflows import arithmetic

X = np.array([1, 2, 3, 4], np.float32)


async def test_a_crash_of_the_engine_loses_no_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    async with running([arithmetic.quadruple]) as stack:
        orchestrator, before_ms = stack.orchestrator, time.time_ns() // 1_000_000
        await orchestrator.infer(submission(arithmetic.quadruple, [X]))
        with monkeypatch.context() as broken:
            broken.setattr("dyorc.engine.engine.Engine.handle", crash)
            with pytest.raises(InternalError):
                await orchestrator.infer(submission(arithmetic.quadruple, [X]))
        await orchestrator.infer(submission(arithmetic.quadruple, [X]))
        totals = orchestrator.statistics("quadruple")
        assert (totals.inference_count, totals.success.count) == (2, 2)
        assert before_ms <= totals.last_inference_ms <= time.time_ns() // 1_000_000 + 1


async def test_the_times_of_a_program_add_up() -> None:
    program = arithmetic.quadruple.programs[0]
    async with running([program]) as stack:
        started_ns = time.monotonic_ns()
        for _ in range(5):
            await stack.orchestrator.infer(submission(program, [X]))
        elapsed_ns = time.monotonic_ns() - started_ns
        totals = stack.orchestrator.statistics(program.name)
    assert (totals.inference_count, totals.execution_count, totals.batches.keys()) == (5, 5, {1})
    parts = (totals.queue, totals.compute_input, totals.compute_infer, totals.compute_output)
    assert all(part.count == 5 for part in parts)
    assert all(part.ns > 0 for part in parts[1:])
    assert sum(part.ns for part in parts) <= totals.success.ns + 5
    assert totals.success.ns < elapsed_ns
