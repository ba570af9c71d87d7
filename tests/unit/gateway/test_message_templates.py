# pyright: basic, reportAttributeAccessIssue=false
# Generated messages have no types.
"""What equal gRPC messages have in common: which are taken for equal, and what their answers look like."""

from typing import Any

import numpy as np
import pytest

from dyorc.authoring.workflow import Workflow
from dyorc.core.arrays import Array
from dyorc.gateway.catalog import Catalog, Model
from dyorc.gateway.grpc import message_templates
from dyorc.gateway.grpc.decoding import GrpcInputs, parse, values_of
from dyorc.gateway.grpc.message_templates import MessageTemplateCache
from dyorc.gateway.infer_request import InferRequest, make_request
from dyorc.gateway.request_outputs import all_outputs
from dyorc.models.offers import ModelKey, Offer, Offers
from dyorc.protocol.inference_pb2 import ModelInferResponse
from tests import oip_grpc
from tests.workflows import arithmetic, tensors

X = np.array([1.5, 2.5, 3.5, 4.5], np.float32)
INDEX = np.array([3, 0], np.int64)


class _NoRoom:
    """Memory of a request whose inputs are small."""

    def room(self, num_bytes: int) -> None:
        return None


def model_of(workflow: Workflow) -> Model:
    return Model.of(Offer.of(ModelKey(workflow.name), workflow), 0)


def request_of(model: Model, message: bytes) -> InferRequest:
    parsed, raws = parse(message)
    memory: Any = _NoRoom()
    arrays = GrpcInputs(parsed.inputs, raws, memory).arrays()
    return make_request(model, parsed.id, arrays, values_of(parsed.parameters), all_outputs(model, is_binary=True))


def affine(x: Array = X, index: Array = INDEX, **options: Any) -> bytes:
    return oip_grpc.request("affine", {"x": x, "index": index}, **options).SerializeToString()


@pytest.fixture
def model() -> Model:
    return model_of(tensors.affine)


@pytest.fixture
def cache(model: Model) -> MessageTemplateCache:
    cache = MessageTemplateCache(Catalog(Offers([model.offer])))
    message = affine()
    cache.add(model, None, message, request_of(model, message))
    return cache


def test_a_message_with_other_numbers_is_read_at_the_same_places(cache: MessageTemplateCache) -> None:
    message = affine(X + 1, INDEX[::-1].copy())
    template = cache.find(message)
    assert template is not None
    x, index = template.layout.arrays(message)
    np.testing.assert_array_equal(x, X + 1)
    np.testing.assert_array_equal(index, INDEX[::-1])


@pytest.mark.parametrize("change", ["name", "type", "shape", "parameter", "id", "longer", "typed"])
def test_a_message_with_another_byte_elsewhere_is_not_taken_for_equal(cache: MessageTemplateCache, change: str) -> None:
    message = affine()
    changed = {
        "name": message.replace(b"affine", b"affinf"),
        "type": message.replace(b"FP32", b"INT4"),
        "shape": message.replace(b"FP32\x1a\x01\x04", b"FP32\x1a\x01\x05"),
        "parameter": affine(factor=2.0),
        "id": affine(request_id="a-7"),
        "longer": message + b"\x12\x011",
        "typed": affine(typed=True),
    }[change]
    assert changed != message
    assert cache.find(changed) is None


def test_answers_are_what_protobuf_reads(cache: MessageTemplateCache) -> None:
    template = cache.find(affine())
    assert template is not None
    for outputs in (np.array([1, 2], np.float32), np.array([3, 4], np.float32)):
        answer = template.answer([outputs])
        assert answer is not None
        assert answer[:5] == b"\0" + (len(answer) - 5).to_bytes(4)
        response = ModelInferResponse.FromString(answer[5:])
        assert response.model_name == "affine"
        np.testing.assert_array_equal(oip_grpc.outputs_of(response)["output"], outputs)


def test_of_several_outputs_each_has_its_place() -> None:
    model = model_of(arithmetic.sums)
    message = oip_grpc.request("sums", {"x": X}).SerializeToString()
    cache = MessageTemplateCache(Catalog(Offers([model.offer])))
    cache.add(model, None, message, request_of(model, message))
    template = cache.find(message)
    assert template is not None
    names = model.signature.outputs.names
    arrays: list[Array] = [np.array(7, np.float32), np.array(3, np.int64)]
    answer = template.answer(arrays)
    assert answer is not None
    response = ModelInferResponse.FromString(answer[5:])
    assert len(names) > 1
    for name, array in zip(names, arrays, strict=True):
        np.testing.assert_array_equal(oip_grpc.outputs_of(response)[name], array)


def test_long_answers_are_left_to_those_who_let_threads_run(cache: MessageTemplateCache) -> None:
    template = cache.find(affine())
    assert template is not None
    assert template.answer([np.zeros(2**15, np.float32)]) is None
    assert template.answer([np.zeros(2, np.float32)]) is not None


@pytest.mark.parametrize("options", [{"request_id": "a-7"}, {"typed": True}, {"explain": True}], ids=str)
def test_what_is_unique_or_elsewhere_is_not_kept(model: Model, options: dict[str, Any]) -> None:
    cache = MessageTemplateCache(Catalog(Offers([model.offer])))
    message = affine(**options)
    cache.add(model, None, message, request_of(model, message))
    assert cache.find(message) is None


def test_the_templates_of_versions_that_left_go(cache: MessageTemplateCache, model: Model) -> None:
    other = model_of(arithmetic.sums)
    offers = Offers([model.offer])
    cache = MessageTemplateCache(Catalog(offers))
    message = affine()
    cache.add(model, None, message, request_of(model, message))
    offers.change([other.offer])
    message_of_other = oip_grpc.request("sums", {"x": X}).SerializeToString()
    cache.add(other, None, message_of_other, request_of(other, message_of_other))
    assert cache.find(message) is None
    assert cache.find(message_of_other) is not None


def test_clients_cannot_fill_the_memory(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_templates, "_MAX_LENGTHS", 3)
    cache = MessageTemplateCache(Catalog(Offers([model.offer])))
    messages = [affine(factor=float(number)) for number in range(20)]
    unknown = [message + b"\x9a\x06" + bytes([size]) + bytes(size) for size, message in enumerate(messages)]
    for message in [*messages, *unknown]:
        cache.add(model, None, message, request_of(model, message))
    assert sum(cache.find(message) is not None for message in messages) <= message_templates._MAX_OF_ONE_LENGTH  # pyright: ignore[reportPrivateUsage]
    assert 0 < sum(cache.find(message) is not None for message in unknown) <= 3
    assert cache.find(unknown[-1]) is not None
