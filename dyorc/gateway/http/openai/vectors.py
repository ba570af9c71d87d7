"""The answers of ``/v1/embeddings`` and ``/v1/rerank``.

Source: github.com/openai/openai-openapi: CreateEmbeddingResponse; Jina's and Cohere's descriptions of rerank.
"""

import base64
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import orjson

from dyorc.authoring.spec import TensorSpec, ValueSpec
from dyorc.core.arrays import Array, element_of_bytes
from dyorc.errors import ExecutionError, InvalidInputError
from dyorc.openai import RerankRequest, TokenEmbeddingRequest


def copy_of(spec: TensorSpec, array: Array) -> Array:
    """Returns a copy of what a workflow answered, whose memory is used again."""
    return element_of_bytes(bytes(array[()])) if isinstance(spec, ValueSpec) else np.array(array)


def _numbers(spec: TensorSpec, array: Array, rank: int, num_rows: int, expected: str) -> Array:
    """Returns what a workflow answered as numbers.

    Raises:
        ExecutionError: If they are not as many as there are inputs.
    """
    if isinstance(spec, ValueSpec):
        try:
            numbers = np.asarray(msgspec.json.decode(bytes(array[()])), np.float64)
        except (ValueError, TypeError):
            raise ExecutionError(f"the workflow answered something else than {expected}") from None
    else:
        numbers = np.asarray(array, np.float32)
    if numbers.ndim == rank - 1 and num_rows == 1:
        numbers = numbers[None]
    if numbers.ndim != rank or len(numbers) != num_rows:
        raise ExecutionError(
            f"the workflow answered numbers of shape {list(numbers.shape)}, expected {expected} of {num_rows} inputs"
        )
    return numbers


def embeddings(request: TokenEmbeddingRequest, spec: TensorSpec, array: Array) -> bytes:
    """Returns the JSON of the answer to a request for embeddings. Python's lock is free between two vectors.

    Raises:
        ExecutionError: If the workflow's answer is no list of vectors, one for each input.
        InvalidInputError: If the vectors have other `dimensions` than the request asks for.
    """
    vectors = _numbers(spec, array, 2, len(request.inputs), "a vector for each")
    size = vectors.shape[1]
    if request.dimensions not in (None, size):
        raise InvalidInputError(f"'dimensions' is {request.dimensions}, and model {request.model!r} answers with {size} numbers")

    def written(vector: Array) -> Any:
        if request.encoding_format == "base64":
            return base64.b64encode(np.ascontiguousarray(vector, "<f4").tobytes()).decode()
        return np.ascontiguousarray(vector)

    data = [
        orjson.Fragment(_json({"object": "embedding", "index": at, "embedding": written(vector)}))
        for at, vector in enumerate(vectors)
    ]
    return _json({"object": "list", "data": data, "model": request.model, "usage": {"prompt_tokens": 0, "total_tokens": 0}})


def _json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def ranking(request: RerankRequest, spec: TensorSpec, array: Array) -> bytes:
    """Returns the JSON of the answer to a request for a ranking: the best documents first.

    Raises:
        ExecutionError: If the workflow's answer is no list of scores, one for each document.
    """
    scores = _numbers(spec, array, 1, len(request.documents), "a score for each")
    best = np.argsort(-scores, kind="stable")[: request.top_n]
    results = [
        {"index": int(at), "relevance_score": float(scores[at])}
        | ({"document": {"text": request.texts[at]}} if request.return_documents else {})
        for at in best
    ]
    return _json({"id": f"rerank-{uuid4().hex}", "model": request.model, "results": results, "usage": {"total_tokens": 0}})
