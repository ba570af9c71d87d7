"""Clients and jobs say what to do instead of pickling them."""

import copy
import pickle
from typing import Any

import pytest

from dyorc.client import AsyncClient, AsyncJob, Client, Job

UNUSED: Any = None


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize(
    ("thing", "advice"),
    [
        (Client("http://localhost:1"), "make another Client"),
        (AsyncClient("http://localhost:1"), "make another AsyncClient"),
        (Job(UNUSED, UNUSED, UNUSED), r"pass on its `id`.*job\(id\)"),
        (AsyncJob(UNUSED, UNUSED, UNUSED), r"pass on its `id`.*job\(id\)"),
    ],
)
def test_what_holds_connections_cannot_be_pickled(thing: Any, advice: str, duplicate: Any) -> None:
    with pytest.raises(TypeError, match=f"{type(thing).__name__} cannot be pickled or copied.*{advice}"):
        duplicate(thing)
