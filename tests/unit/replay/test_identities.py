"""Which tensors of two histories are the same."""

from typing import Any

import pytest

from dyorc.replay.identities import shown_views


@pytest.mark.parametrize(
    ("views", "shown"),
    [
        ([], ""),
        ([["..."], [[None, None, None], [0, None, 1]]], ""),
        ([[0, [None, None, None]]], "[[0]]"),
        ([["...", 0, [None, None, None]]], "[['...', 0, [None, None, None]]]"),
        ([[[None, None, None], 0]], "[[[None, None, None], 0]]"),
        ([[None, "..."]], "[[None]]"),
    ],
)
def test_only_views_of_the_whole_are_left_out(views: list[Any], shown: str) -> None:
    assert shown_views(views) == shown
