import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyorc.gateway.codec.json_counts import count_values

_TEXTS = st.text(alphabet='a:[{"\\\n\u00e9,}]', max_size=8)
_JSON = st.recursive(
    _TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=20,
)


def walked(value: Any) -> int:
    """Returns how many fields, texts (also names), lists and objects a value has, by plain Python."""
    match value:
        case dict():
            return 1 + sum(2 + walked(each) for each in value.values())
        case list():
            return 1 + sum(map(walked, value))
        case _:
            return int(isinstance(value, str))


@given(value=_JSON, is_ascii=st.booleans())
def test_all_are_counted(value: Any, is_ascii: bool) -> None:
    body = json.dumps(value, ensure_ascii=is_ascii).encode()
    assert count_values(body, -1) == walked(value)
    for limit in (walked(value) - 1, walked(value), 3):
        assert (count_values(body, limit) > limit) == (walked(value) > limit)


@pytest.mark.parametrize("body", [b"", b'"', b"\\", b'{"a', b'\\"{', b"\xff[" * 9])
def test_what_is_no_json_is_counted_somehow(body: bytes) -> None:
    assert 0 <= count_values(body, -1) <= len(body)
