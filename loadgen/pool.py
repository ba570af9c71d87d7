"""The requests to send and their expected answers. Used by workers and by code that draws requests; only `save` and `load` do
I/O."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np

Tensors: TypeAlias = Mapping[str, np.ndarray[Any, Any]]
"""The tensors of one request by name, without a batch dimension. Strings are arrays of dtype object that hold bytes; a `Pool`
takes NumPy's own strings, too, and single values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Requests that are sent in turn.

    Attributes:
        inputs: The inputs of each request.
        answers: The expected answer to each, computed without a server. If empty, no answers are checked.
        branches: For each request, which way it takes through its workflow (e.g. "large"); latencies are reported for each. Empty
            if unknown.
        tolerance: The largest accepted difference between a number and its reference; integers and strings have to be equal.
    """

    inputs: Sequence[Tensors]
    answers: Sequence[Tensors] = ()
    branches: Sequence[str] = ()
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        if not self.inputs:
            raise ValueError("a pool needs at least one request")
        for name, values in (("answers", self.answers), ("branches", self.branches)):
            if values and len(values) != len(self.inputs):
                raise ValueError(
                    f"the pool has {len(self.inputs)} requests and {len(values)} {name}, expected one for each or none"
                )
        for name, rows in (("inputs", self.inputs), ("answers", self.answers)):
            if rows:
                tensors = [{key: _as_tensor(value) for key, value in row.items()} for row in rows]
                object.__setattr__(self, name, tensors)

    def save(self, path: Path) -> None:
        """Writes an .npz file without pickled objects: strings become bytes and lengths."""
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        for kind, rows in (("inputs", self.inputs), ("answers", self.answers)):
            for at, tensors in enumerate(rows):
                for name, array in tensors.items():
                    arrays.update(_arrays_to_store(f"{kind}/{at}/{name}", array))
        about = {
            "num_requests": len(self.inputs),
            "has_answers": bool(self.answers),
            "branches": list(self.branches),
            "tolerance": self.tolerance,
        }
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads what `save` wrote.

        Raises:
            ValueError: If it is not such a file.
        """
        with np.load(path, allow_pickle=False) as stored:
            if "about" not in stored:
                raise ValueError(f"{path} is not a pool: it holds {sorted(stored)[:5]}, expected 'about' and tensors")
            about = json.loads(stored["about"].tobytes())
            rows: dict[str, list[dict[str, Any]]] = {
                kind: [{} for _ in range(about["num_requests"])] for kind in ("inputs", "answers")
            }
            for key in stored.files:
                if key == "about" or key.endswith("/lengths"):
                    continue
                kind, at, name = key.split("/", 2)
                if name.endswith("/bytes"):
                    name = name.removesuffix("/bytes")
                    rows[kind][int(at)][name] = _texts(stored[key], stored[f"{kind}/{at}/{name}/lengths"])
                elif name.endswith("/bfloat16"):
                    rows[kind][int(at)][name.removesuffix("/bfloat16")] = stored[key].view(_bfloat16())
                else:
                    rows[kind][int(at)][name] = stored[key]
        return cls(
            inputs=rows["inputs"],
            answers=rows["answers"] if about["has_answers"] else (),
            branches=about["branches"],
            tolerance=about["tolerance"],
        )


def _as_tensor(value: Any) -> np.ndarray[Any, Any]:
    """Returns a value as an array that can be sent."""
    if isinstance(value, bytes | str):  # NumPy's own strings lose zeros at their ends
        value = np.array(value, object)
    array = np.asarray(value)
    if array.dtype.kind not in "SUO":
        return array
    texts = np.empty(array.shape, object)
    for at, text in np.ndenumerate(array):
        texts[at] = text.encode() if isinstance(text, str) else bytes(text) if isinstance(text, bytes) else text
    return texts


def _arrays_to_store(key: str, array: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    if array.dtype.name == "bfloat16":  # NumPy's files support only NumPy's own types
        return {f"{key}/bfloat16": np.ascontiguousarray(array).view(np.uint16)}
    if array.dtype != object:
        return {key: array}
    texts = [bytes(text) for text in array.ravel()]
    lengths = np.array([len(text) for text in texts], np.int64).reshape(array.shape)
    return {f"{key}/bytes": np.frombuffer(b"".join(texts), np.uint8), f"{key}/lengths": lengths}


def _bfloat16() -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def _texts(data: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    ends = np.cumsum(lengths.ravel())
    raw = data.tobytes()
    texts = np.empty(lengths.shape, object)
    texts.ravel()[:] = [raw[end - length : end] for end, length in zip(ends.tolist(), lengths.ravel().tolist(), strict=True)]
    return texts
