"""Bodies of the peers that have no tensor protocol."""

import numpy as np
import pytest

from benchmarks import wire


def test_tensors_come_back_as_they_were() -> None:
    texts = np.array([[b"one", b""], [b"\x00\xff", b"four"]], object)
    tensors = {
        "numbers": np.arange(6, dtype=np.float32).reshape(2, 3),
        "one": np.array(7, np.int64),
        "none": np.zeros((0, 4), np.uint8),
        "texts": texts,
        "text": np.array(b"alone", object),
    }
    found = wire.unpack(wire.pack(tensors))
    assert list(found) == list(tensors)
    for name, array in tensors.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    "change", [lambda body: body[:3], lambda body: body[:-1], lambda body: body + b"x", lambda body: b"\xff" * 9]
)
def test_a_malformed_body_is_refused(change: object) -> None:
    body = wire.pack({"x": np.arange(4, dtype=np.float32)})
    with pytest.raises(ValueError, match=r"."):
        wire.unpack(change(body))  # pyright: ignore[reportCallIssue]
