"""When two requests are equal."""

import ml_dtypes
import numpy as np
import pytest

from dyorc.answering.input_identity import InputsIdentity
from dyorc.core.arrays import Array

X = np.arange(6, dtype=np.float32).reshape(2, 3)
TEXTS = np.array([b"ab", b"c"], dtype=object)


def identity(*arrays: Array, workflow: str = "w", statics: tuple[int | str, ...] = (1,)) -> InputsIdentity:
    return InputsIdentity(workflow, arrays, statics)


@pytest.mark.parametrize(
    "array", [X, X.T, X[:, ::-1], np.float32(3).reshape(()), X[:0], X.astype(ml_dtypes.bfloat16), X > 2, TEXTS, X * np.nan]
)
def test_requests_are_equal_if_their_inputs_are(array: Array) -> None:
    first, second = identity(array), identity(array.copy())
    assert (first, hash(first)) == (second, hash(second))


def test_requests_differ_if_anything_that_counts_differs() -> None:
    all_of_them = [
        identity(X),
        identity(X.T),
        identity(X.reshape(3, 2)),
        identity(X.view(np.int32)),
        identity(X + 1),
        identity(X, X),
        identity(X, workflow="v"),
        identity(X, statics=("1",)),
        identity(TEXTS),
        identity(np.array([b"a", b"bc"], dtype=object)),
    ]
    assert len(set(all_of_them)) == len(all_of_them)


def test_a_closed_identity_no_longer_reads_its_inputs() -> None:
    early, late, other = identity(X), identity(X), identity(X)
    assert early == other
    for each in (early, late):
        each.close()
    assert early == other, "its digest was made before"
    assert late != other
    assert len({late, other}) == 2
