"""Small outputs that workflows read, of programs whose other outputs are stored."""

import asyncio

import numpy as np
import pytest

from dyorc.answering import local_answers
from dyorc.answering.local_answers import own_arrays
from dyorc.core.arrays import Array
from dyorc.errors import InternalError
from tests.asking import submission
from tests.deadlines import TIMEOUT_S
from tests.integration.stack import running
from tests.workflows import checksummed

_NUM_WORDS = 50_001


async def _answers() -> list[Array]:
    async with running([checksummed.checked]) as stack:
        asked = submission(checksummed.checked, (np.array(5),), (_NUM_WORDS,))
        return await asyncio.wait_for(stack.orchestrator.infer(asked, take=own_arrays), TIMEOUT_S)


def test_a_number_is_read_beside_a_stored_tensor() -> None:
    is_right, checksum, _ = asyncio.run(_answers())
    assert is_right
    assert int(checksum) == checksummed.checksum(checksummed.expected_words(5, _NUM_WORDS))


def test_a_value_that_cannot_be_read_fails_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(arrays: list[Array]) -> list[Array]:
        raise ValueError(f"{len(arrays)} arrays are not to be had")

    monkeypatch.setattr(local_answers, "own_arrays", refuse)
    with pytest.raises(InternalError, match="arrays are not to be had"):
        asyncio.run(_answers())
