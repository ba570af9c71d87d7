"""3.2 and 3.3: requests and answers of every type, in JSON and binary, their parameters and their errors, by all four clients."""
# pyright: basic
# pyright: reportMissingImports=false
# Tritonclient is in another environment.

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import Any

import numpy as np
from clients import KINDS, Client, response_id
from rows import Table, expect
from tensors import DATATYPES, JSON_DATATYPES, digit, empty, input_name, output_name, same, sample, turned

_X = np.arange(4, dtype=np.float32)
_LARGE = 2 * 2**20  # numbers of 4 bytes: more than gRPC's own default lets through
_MAX_TRIES = 20


async def one_type(client: Client, datatype: str, is_binary: bool) -> None:
    """Sends one tensor of a type, the others without elements."""
    array = sample(datatype)
    given = {one: array if one == datatype else empty(one) for one in (DATATYPES if is_binary else JSON_DATATYPES)}
    inputs = [client.input(input_name(one), data, one, is_binary) for one, data in given.items()]
    if not is_binary:  # the two that have no JSON form
        inputs += [client.input(input_name(one), empty(one), one) for one in ("FP16", "BF16")]
    result = await client.infer("every_type", inputs, outputs=[client.output(output_name(datatype), is_binary)])
    found = result.as_numpy(output_name(datatype))
    assert same(found, turned(array)), f"{datatype} came back as {found!r}"


async def all_outputs(client: Client) -> None:
    """Without named outputs, all come, in binary."""
    arrays = {one: sample(one) for one in DATATYPES}
    result = await client.infer("every_type", [client.input(input_name(one), array, one) for one, array in arrays.items()])
    for datatype, array in arrays.items():
        assert same(result.as_numpy(output_name(datatype)), turned(array)), f"{datatype} came back wrong"


async def no_elements(client: Client) -> None:
    result = await client.infer("every_type", [client.input(input_name(one), empty(one), one) for one in DATATYPES])
    for datatype in DATATYPES:
        found = result.as_numpy(output_name(datatype))
        assert found is not None, f"no {datatype}"
        expect(tuple(found.shape), (0, 3), f"the shape of {datatype}")


def _texts() -> np.ndarray:
    return np.array([b"ab", b"", "zwölf €".encode(), b"z" * 40_000], dtype=np.object_)


def _mirror_inputs(client: Client, x: np.ndarray, texts: np.ndarray) -> list[Any]:
    return [client.input("x", x, "FP32"), client.input("texts", texts, "BYTES")]


async def texts(client: Client) -> None:
    result = await client.infer("mirror", _mirror_inputs(client, _X, _texts()))
    assert same(result.as_numpy("reversed"), np.array([text[::-1] for text in _texts()], dtype=np.object_)), "wrong texts"


async def large_tensors(client: Client) -> None:
    x = np.arange(_LARGE, dtype=np.float32) % 1000
    result = await client.infer("mirror", _mirror_inputs(client, x, _texts()))
    np.testing.assert_array_equal(result.as_numpy("raised"), x + 1)


async def named_outputs(client: Client) -> None:
    """Only the named outputs come, in the order in which they are named."""
    wanted = ["reversed", "raised"]
    result = await client.infer("mirror", _mirror_inputs(client, _X, _texts()), outputs=[client.output(one) for one in wanted])
    response = result.get_response()
    expect([one["name"] if client.is_http else one.name for one in (response["outputs"] if client.is_http else response.outputs)],
           wanted, "the outputs")  # fmt: skip
    result = await client.infer("mirror", _mirror_inputs(client, _X, _texts()), outputs=[client.output("raised")])
    expect(result.as_numpy("reversed"), None, "an output that was not asked for")


async def mixed_outputs(client: Client) -> None:
    """One answer has some outputs in JSON and some in binary; the same holds for inputs."""
    texts_ = np.array([b"ab", b"c"], dtype=np.object_)
    for is_binary in (False, True):
        outputs = [client.output("raised", is_binary), client.output("reversed", not is_binary)]
        inputs = [client.input("x", _X, "FP32", not is_binary), client.input("texts", texts_, "BYTES", is_binary)]
        result = await client.infer("mirror", inputs, outputs=outputs)
        np.testing.assert_array_equal(result.as_numpy("raised"), _X + 1)
        assert same(result.as_numpy("reversed"), np.array([b"ba", b"c"], dtype=np.object_)), "wrong texts"


async def ids(client: Client) -> None:
    inputs = [client.input("x", _X, "FP32")]
    expect(response_id(client, await client.infer("behave", inputs, request_id="7-ä")), "7-ä", "the id")
    expect(response_id(client, await client.infer("behave", inputs)), "", "the id of a request without one")


async def model_and_version(client: Client) -> None:
    for version in ("", "1"):
        response = (await client.infer("behave", [client.input("x", _X, "FP32")], model_version=version)).get_response()
        found = (
            (response["model_name"], response["model_version"])
            if client.is_http
            else (response.model_name, response.model_version)
        )
        expect(found, ("behave", "1"), "name and version")


async def classes(client: Client) -> None:
    """The highest values of an output come with their positions, as texts; if more are asked for than there are, all of them."""
    x = np.array([0.5, 2.25, -1, 2.25], np.float32)
    inputs = [client.input("x", x, "FP32"), client.input("texts", np.array([b"ab"], dtype=np.object_), "BYTES")]
    reversed_ = np.array([b"ba"], dtype=np.object_)
    for is_binary in (True, False):
        for num, expected in ((1, ["3.25:1"]), (3, ["3.25:1", "3.25:3", "1.5:0"]), (9, ["3.25:1", "3.25:3", "1.5:0", "0.0:2"])):
            outputs = [client.output("raised", is_binary, num), client.output("reversed", is_binary)]
            result = await client.infer("mirror", inputs, outputs=outputs)
            texts = np.array([text.encode() for text in expected], dtype=np.object_)
            assert same(result.as_numpy("raised"), texts), f"the {num} highest are {result.as_numpy('raised')}"
            assert same(result.as_numpy("reversed"), reversed_), "the other output is wrong"


async def classes_of_texts(client: Client) -> None:
    outputs = [client.output("reversed", class_count=2)]
    status, text = await client.refusal("infer", "mirror", _mirror_inputs(client, _X, _texts()), outputs=outputs)
    expect(status, "INVALID_ARGUMENT", "the status")
    assert "reversed" in text, text


async def priorities(client: Client) -> None:
    for priority in (0, 1, 7):
        await client.infer("behave", [client.input("x", _X, "FP32")], priority=priority)


async def sequences(client: Client) -> None:
    """No model keeps state between requests, so a sequence is refused, not treated as single requests."""
    for sequence_id in (7, "seven"):
        given: dict[str, Any] = {"sequence_id": sequence_id, "sequence_start": True, "sequence_end": True}
        await refused(client, "UNIMPLEMENTED", ("sequence_id",), **given)


async def own_parameters(client: Client) -> None:
    found = await client.behave(_X, rest_s=0.01, fails=False)
    np.testing.assert_array_equal(found, _X)


async def deadline(client: Client) -> None:
    """The timeout is in microseconds; requests that wait behind others time out as well."""
    arguments: dict[str, Any] = {"timeout": 50_000, "parameters": {"rest_s": 0.5}}
    for _ in range(_MAX_TRIES):
        status, text = await client.refusal("infer", "behave", [client.input("x", _X, "FP32")], **arguments)
        if status != "UNAVAILABLE":  # a server that is behind refuses a request that it could not answer in time
            break
    expect(status, "DEADLINE_EXCEEDED", "the status")
    assert text, "no text"


async def compression(client: Client, algorithm: str) -> None:
    x = np.zeros(20_000, np.float32)
    algorithms: dict[str, Any] = {"compression_algorithm": algorithm}
    if client.is_http:
        algorithms = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
    result = await client.infer("mirror", _mirror_inputs(client, x, _texts()), **algorithms)
    np.testing.assert_array_equal(result.as_numpy("raised"), x + 1)


async def many_at_once(client: Client) -> None:
    """Many requests are in flight, in each client's way: by futures, threads, callbacks, or coroutines."""
    arrays = [np.full(8, at, np.float32) for at in range(16)]
    inputs = [[client.input("x", x, "FP32")] for x in arrays]
    if client.is_async:
        results = await asyncio.gather(*(client.infer("behave", one) for one in inputs))
    elif client.is_http:
        waiting = [client.raw.async_infer("behave", one) for one in inputs]
        results = [one.get_result() for one in waiting]
    else:
        results = await _called_back(client, inputs)
    for x, result in zip(arrays, results, strict=True):
        np.testing.assert_array_equal(result.as_numpy("output"), x)


async def _called_back(client: Client, inputs: list[list[Any]]) -> list[Any]:
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in inputs]

    def done(future: asyncio.Future[Any], result: Any, error: Any) -> None:
        loop.call_soon_threadsafe(future.set_result, result if error is None else error)

    for one, future in zip(inputs, futures, strict=True):
        client.raw.async_infer("behave", one, partial(done, future))
    return await asyncio.gather(*futures)


async def digits(client: Client) -> None:
    result = await client.infer("classify", [client.input("image", digit(), "FP32")])
    found = result.as_numpy("probabilities")
    expect((found.dtype, found.shape), (np.float32, (10,)), "the probabilities")
    assert abs(float(found.sum()) - 1) < 1e-3, found
    expect(tuple(result.as_numpy("took_large").shape), (), "the shape of a scalar")


# -------------------------------------------------------------------------------------------------------------------- errors


async def refused(client: Client, status: str, words: tuple[str, ...], **changes: Any) -> None:
    """A request with an error in it is refused, and a correct one afterwards is served on the same connection."""
    name, array, datatype = changes.pop("x", ("x", _X, "FP32"))
    model = changes.pop("model", "behave")
    outputs = [client.output(one) for one in changes.pop("outputs", [])]
    inputs = [client.input(name, array, datatype)] if array is not None else []
    found, text = await client.refusal("infer", model, inputs, outputs=outputs or None, **changes)
    expect(found, status, f"the status ({text})")
    assert all(word in text for word in words), f"{words} not in {text!r}"
    np.testing.assert_array_equal(await client.behave(_X), _X)


_TWICE = np.zeros((2, 2), np.float32)
ERRORS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "unknown model": ("NOT_FOUND", ("nothing",), {"model": "nothing"}),
    "unknown version": ("NOT_FOUND", ("7",), {"model_version": "7"}),
    "unknown input": ("INVALID_ARGUMENT", ("y",), {"x": ("y", _X, "FP32")}),
    "wrong rank": ("INVALID_ARGUMENT", ("x",), {"x": ("x", _TWICE, "FP32")}),
    "wrong size": (
        "INVALID_ARGUMENT",
        ("image",),
        {"model": "classify", "x": ("image", np.zeros((1, 8, 9), np.float32), "FP32")},
    ),
    "wrong type": ("INVALID_ARGUMENT", ("x", "FP64"), {"x": ("x", _X.astype(np.float64), "FP64")}),
    "unknown output": ("INVALID_ARGUMENT", ("nothing",), {"outputs": ["nothing"]}),
    "unknown parameter": ("INVALID_ARGUMENT", ("nothing",), {"parameters": {"nothing": 1}}),
    "wrong parameter": ("INVALID_ARGUMENT", ("rest_s",), {"parameters": {"rest_s": "long"}}),
    "missing input": ("INVALID_ARGUMENT", ("texts",), {"model": "mirror"}),
    "failing program": ("INTERNAL", ("asked to fail",), {"parameters": {"fails": True}}),
    "unary request of a streaming model": ("UNIMPLEMENTED", ("count",), {"model": "count"}),
}

CHECKS: dict[str, tuple[str, Any]] = {
    "all outputs by default, every type at once": ("3.2 inference", all_outputs),
    "tensors without elements": ("3.3 binary tensors", no_elements),
    "texts, empty, in UTF-8, of 40,000 bytes": ("3.2 inference", texts),
    "tensors of 8 MiB both ways": ("3.2 inference", large_tensors),
    "outputs that are named, in their order": ("3.2 inference", named_outputs),
    "the request's id comes back": ("3.2 inference", ids),
    "the answer names model and version": ("3.2 inference", model_and_version),
    "classes instead of an output": ("3.2 classification", classes),
    "texts have no classes": ("3.2 classification", classes_of_texts),
    "priorities": ("3.2 inference", priorities),
    "sequences are refused": ("3.2 inference", sequences),
    "the model's own parameters": ("3.2 inference", own_parameters),
    "timeout in microseconds": ("3.2 statuses", deadline),
    "compressed by gzip, both ways": ("3.3 compression", partial(compression, algorithm="gzip")),
    "compressed by deflate, both ways": ("3.3 compression", partial(compression, algorithm="deflate")),
    "sixteen requests at once": ("3.2 inference", many_at_once),
    "examples/digits": ("examples", digits),
}


def add(table: Table, url: str, grpc_address: str) -> None:
    """Adds all checks for all four clients."""

    async def run(kind: str, check: Any) -> None:
        async with Client(kind, url, grpc_address) as client:
            await check(client)

    for kind in KINDS:
        for datatype in DATATYPES:
            check = partial(one_type, datatype=datatype, is_binary=True)
            section = "3.3 binary tensors" if kind.startswith("http") else "3.4 gRPC"
            table.add(section, kind, f"{datatype} as raw bytes", partial(run, kind, check))
        if kind.startswith("http"):
            for datatype in JSON_DATATYPES:
                check = partial(one_type, datatype=datatype, is_binary=False)
                table.add("3.2 inference", kind, f"{datatype} in JSON", partial(run, kind, check))
            table.add("3.3 binary tensors", kind, "JSON and binary in one request and answer", partial(run, kind, mixed_outputs))
        for name, (section, check) in CHECKS.items():
            table.add(section, kind, name, partial(run, kind, check))
        for name, (status, words, changes) in ERRORS.items():
            check = partial(_refused_again, status=status, words=words, changes=changes)
            table.add("3.2 statuses", kind, name, partial(run, kind, check))


async def _refused_again(client: Client, status: str, words: tuple[str, ...], changes: dict[str, Any]) -> None:
    await refused(client, status, words, **changes, request_id=uuid.uuid4().hex)
