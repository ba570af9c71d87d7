"""Structured values in signatures and workflows. Plain Python is the reference; pydantic reads the JSON."""

import io
import json
import math
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Literal

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field, Json, SecretStr, computed_field
from typing_extensions import TypedDict

import dyorc
from dyorc.authoring.signature import OutputKind
from dyorc.authoring.spec import ValueSpec
from dyorc.authoring.values import File, ValueType
from dyorc.errors import DefinitionError, InvalidInputError, ProgramError, WorkflowError

Number = Float[np.ndarray, ""]


@dataclass
class Parsed:
    kind: str
    words: list[str]


@dataclass
class Counted:
    n: int


@dyorc.program(batched=False)
def size(text: str) -> int:
    return len(text)


class Answer(BaseModel):
    label: str
    score: float = Field(ge=0)


class Pair(TypedDict):
    left: int
    right: list[int]


class Colour(Enum):
    RED = "red"


@dyorc.program(batched=False)
def parse(text: str, lower: bool = True) -> Parsed:
    return Parsed("invoice" if "invoice" in text else "letter", (text.lower() if lower else text).split())


@dyorc.program
def grade(parsed: list[Parsed]) -> list[Answer]:
    return [Answer(label=each.kind, score=np.float32(len(each.words))) for each in parsed]


@dyorc.program(batched=False)
def shout(text: str) -> str:
    return text.upper()


@dyorc.program(batched=False)
async def split(text: str) -> AsyncIterator[str]:
    for word in text.split():
        yield word


@dyorc.workflow
async def classify(text: str, bonus: int = 0) -> Answer:
    parsed = parse(text)
    if await dyorc.when(parsed, lambda value: value.kind == "invoice"):
        return grade(parsed)
    first = await grade(parsed)
    return Answer(label=first.label, score=first.score + bonus)


def test_values_go_through_programs_decisions_and_answers() -> None:
    assert dyorc.run(classify, "an Invoice invoice") == Answer(label="invoice", score=3)
    assert dyorc.run(classify, "a letter", bonus=5) == Answer(label="letter", score=7)
    assert dyorc.run(parse, "A b", False) == Parsed("letter", ["A", "b"])


def test_a_result_is_passed_on_without_waiting() -> None:
    @dyorc.workflow
    async def twice(text: str) -> str:
        return shout(shout(text))

    assert dyorc.run(twice, "ß") == "SS"


def test_a_workflow_gets_plain_values_and_passes_refs_to_workflows() -> None:
    @dyorc.workflow
    async def inner(parsed: Parsed, more: list[str]) -> dict[str, Any]:
        return asdict(parsed) | {"more": more}

    @dyorc.workflow
    async def outer(request: dict[str, str], tags: list[str] = ["a"]) -> dict[str, Any]:  # noqa: B006
        return inner(parse(request["text"]), tags)

    assert dyorc.run(outer, {"text": "x y"}) == {"kind": "letter", "words": ["x", "y"], "more": ["a"]}
    assert dyorc.run(outer, {"text": ""}, tags=[]) == {"kind": "letter", "words": [], "more": []}


@pytest.mark.parametrize("awaits", [True, False])
def test_what_is_written_otherwise_is_awaited_first(awaits: bool) -> None:
    """A text passes as it is, and a union as JSON."""

    @dyorc.program(batched=False)
    def either(value: str | dict[str, int]) -> str | dict[str, int]:
        return value

    @dyorc.program(batched=False)
    async def joined(words: AsyncIterator[str | dict[str, int]]) -> str:
        return "+".join([str(word) async for word in words])

    @dyorc.workflow
    async def returns(text: str) -> str | dict[str, int]:
        return await shout(text) if awaits else shout(text)

    @dyorc.workflow
    async def yields(text: str) -> AsyncIterator[str | dict[str, int]]:
        yield await shout(text) if awaits else shout(text)

    @dyorc.workflow
    async def passes(text: str) -> str | dict[str, int]:
        return either(await shout(text) if awaits else shout(text))

    @dyorc.workflow
    async def becomes_text(text: str) -> str:
        value = either(text)
        return shout(await value if awaits else value)

    @dyorc.workflow
    async def passes_a_stream(text: str) -> str:
        words = split(text)
        return joined(words) if not awaits else "+".join([await word async for word in words])

    for flow in (returns, passes, becomes_text):
        if awaits:
            assert dyorc.run(flow, "ab") == "AB"
        else:
            with pytest.raises(WorkflowError, match=r"got a Ref to a value as \w+, expected a value as \w+; .* await it"):
                dyorc.run(flow, "ab")
    if awaits:
        assert list(dyorc.run(yields, "ab")) == ["AB"]
        assert dyorc.run(passes_a_stream, "a b") == "a+b"
    else:
        with pytest.raises(WorkflowError, match="await it"):
            list(dyorc.run(yields, "ab"))
        with pytest.raises(WorkflowError, match="is a stream of"):
            dyorc.run(passes_a_stream, "a b")


def test_a_value_that_a_workflow_changes_is_its_own() -> None:
    @dyorc.workflow
    async def change(request: dict[str, int]) -> tuple[dict[str, int], dict[str, int]]:
        first = keep(request)
        request["more"] = 1
        got = await first
        got["other"] = 2
        return keep(got), first

    @dyorc.program(batched=False)
    def keep(value: dict[str, int]) -> dict[str, int]:
        return value

    assert dyorc.run(change, {"a": 0}) == ({"a": 0, "other": 2}, {"a": 0})


def test_streams_of_values() -> None:
    @dyorc.workflow
    async def story(text: str) -> AsyncIterator[dict[str, str]]:
        async for word in split(text):
            yield {"word": await shout(word)}

    assert list(dyorc.run(story, "ab cd")) == [{"word": "AB"}, {"word": "CD"}]


def test_values_stand_beside_tensors() -> None:
    class Mixed(TypedDict):
        total: Number
        names: list[str]

    @dyorc.program(batched=False)
    def total(x: Float[np.ndarray, " n"], names: list[str]) -> Mixed:
        return {"total": x.sum(), "names": names}

    @dyorc.workflow
    async def mixed(x: Float[np.ndarray, " n"], names: list[str]) -> Mixed:
        result = total(x, names)
        return {"total": result["total"], "names": result["names"]}

    assert mixed.signature.outputs.kind is OutputKind.FIELDS
    answer = dyorc.run(mixed, np.ones(3, np.float32), ["a"])
    assert (float(answer["total"]), answer["names"]) == (3.0, ["a"])


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(), inside, max_size=4),
    max_leaves=12,
)


@given(_JSON)
def test_any_json_comes_back_as_it_was(value: Any) -> None:
    value_type = ValueType.of(Any, "program 'x'", "value")
    assert value_type is not None
    raw = value_type.encode(value, "x")
    assert json.loads(raw) == value
    assert value_type.decode(raw, "x") == value


@pytest.mark.parametrize(
    ("annotation", "value", "schema"),
    [
        (int, 3, {"type": "integer"}),
        (list[str], ["a"], {"items": {"type": "string"}, "type": "array"}),
        (str | None, None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (Literal["a", "b"], "b", {"enum": ["a", "b"], "type": "string"}),
        (tuple[int, ...], (1, 2), {"items": {"type": "integer"}, "type": "array"}),
        (Colour, Colour.RED, {"enum": ["red"], "title": "Colour", "type": "string"}),
        (Pair, {"left": 1, "right": [2]}, None),
        (Parsed, Parsed("a", []), None),
        (Answer, Answer(label="a", score=1), None),
    ],
)
def test_types_with_their_schemas(annotation: Any, value: Any, schema: dict[str, Any] | None) -> None:
    value_type = ValueType.of(annotation, "program 'x'", "value")
    assert value_type is not None
    assert value_type.decode(value_type.encode(value, "x"), "x") == value
    if schema is not None:
        assert value_type.schema == schema
    else:
        assert value_type.schema["type"] == "object"


class Named(BaseModel):
    name: str = Field(alias="Name")
    nick: str = Field("", validation_alias="Nick", serialization_alias="nickName")


class Strict(BaseModel, extra="forbid"):
    side: int

    @computed_field
    @property
    def area(self) -> int:
        return self.side**2


class Packed(BaseModel):
    inner: Json[list[int]]


@dataclass
class Blob:
    data: bytes
    score: float | None = None


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Named, Named(Name="a", Nick="b")),
        (list[Named], [Named(Name="a", Nick="b")]),
        (Strict, Strict(side=3)),
        (Packed, Packed(inner="[1]")),
        (float | None, math.inf),
        (dict[str, list[float | None]], {"a": [-math.inf, None, 1.5]}),
        (list[bytes], [b"\xff\x00", b""]),
        (bytes | None, b"\xff"),
        (list[Blob], [Blob(b"\xff\x00", math.inf), Blob(b"")]),
    ],
)
def test_a_value_comes_back_as_it_was(annotation: Any, value: Any) -> None:
    value_type = ValueType.of(annotation, "program 'x'", "value")
    assert value_type is not None
    assert value_type.decode(value_type.encode(value, "x"), "x") == value
    json.loads(value_type.encode(value, "x"), parse_constant=pytest.fail)


def test_nan_is_nan_or_refused_and_never_nothing() -> None:
    number = ValueType.of(float | None, "program 'x'", "value")
    assert number is not None
    assert math.isnan(number.decode(number.encode(math.nan, "x"), "x"))
    blob = ValueType.of(Blob, "program 'x'", "value")
    assert blob is not None
    with pytest.raises(InvalidInputError, match=r"x: Blob .*holds NaN or infinity.*ser_json_inf_nan='strings'"):
        blob.encode(Blob(b"", math.nan), "x")
    assert blob.decode(blob.encode(Blob(b"", None), "x"), "x") == Blob(b"", None)


@dataclass
class Circle:
    radius: float
    name: str = ""


class Odd(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="strings")
    radius: float


@pytest.mark.parametrize("text", ['"NaN"', '" -infinity "', '"INF"', "1e999", "1E+400"])
def test_nan_that_would_be_lost_is_refused_where_it_comes_in(text: str) -> None:
    raw = f'{{"radius": {text}}}'
    circle = ValueType.of(Circle, "program 'x'", "value")
    assert circle is not None
    with pytest.raises(InvalidInputError, match=r"^x: Circle .* holds NaN or infinity, .*ser_json_inf_nan='strings'"):
        circle.decode(raw.encode(), "x")
    assert circle.decode(b'{"radius": 1e100, "name": "NaN"}', "x") == Circle(1e100, "NaN")
    for annotation, form in ((Odd, raw), (list[Circle], f"[{raw}]"), (dict[str, Circle], f'{{"a": {raw}}}')):
        kept = ValueType.of(annotation, "program 'x'", "value")
        assert kept is not None
        value = kept.decode(form.encode(), "x")
        assert repr(kept.decode(kept.encode(value, "y"), "z")) == repr(value)


def test_types_that_lose_something_as_json_are_refused() -> None:
    class Hidden(BaseModel):
        shown: int
        hidden: str = Field("s", exclude=True)

    class Secret(BaseModel):
        word: SecretStr

    for annotation, reason in ((list[Hidden], "exclude=True"), (Secret, "SecretStr is written as stars")):
        with pytest.raises(DefinitionError, match=f"program 'x': 'value' is annotated .*{reason}"):
            ValueType.of(annotation, "program 'x'", "value")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "I", "F", "CMYK", "YCbCr", "LAB"])
def test_images_of_all_modes_keep_their_pixels(mode: str) -> None:
    image = picture().convert("L").convert(mode) if mode in ("I", "F", "I;16") else picture()
    if mode == "LAB":
        image = PIL.Image.frombytes("LAB", image.size, image.tobytes())
    elif image.mode != mode:
        image = image.convert(mode)
    value_type = ValueType.of(PIL.Image.Image, "program 'x'", "image")
    assert value_type is not None
    back = value_type.decode(value_type.encode(image, "x"), "x")
    assert (back.mode, back.size, back.tobytes()) == (image.mode, image.size, image.tobytes())


def test_a_program_of_another_kind_is_no_image() -> None:
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n%%EOF\n"
    with pytest.raises(InvalidInputError, match="'image' is no image"):
        dyorc.run(brightness, postscript)


def picture(width: int = 6, height: int = 4) -> PIL.Image.Image:
    pixels = np.arange(width * height * 3, dtype=np.uint8).reshape(height, width, 3)
    return PIL.Image.fromarray(pixels)


@dyorc.program(batched=False)
def mean(image: PIL.Image.Image) -> float:
    return float(np.asarray(image).mean())


@dyorc.workflow
async def brightness(image: PIL.Image.Image) -> float:
    return mean(image)


def test_images_come_as_images_or_files() -> None:
    image = picture()
    buffer = io.BytesIO()
    image.save(buffer, "BMP")
    expected = float(np.asarray(image).mean())
    assert dyorc.run(brightness, image) == expected
    assert dyorc.run(brightness, buffer.getvalue()) == expected


def test_bytes_and_files_stay_what_they_are() -> None:
    @dyorc.program(batched=False)
    def kind(file: dyorc.File, more: bytes) -> tuple[str, bytes]:
        return file.content_type, more

    assert dyorc.run(kind, File(b"%PDF-1.7"), b"\x00\xff") == ("application/pdf", b"\x00\xff")
    assert dyorc.run(kind, b"", b"")[0] == "application/octet-stream"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: dyorc.run(classify, 3), InvalidInputError, "'text' is int 3, expected str"),
        (lambda: dyorc.run(parse, "x", lower="no"), InvalidInputError, "'lower' is str 'no', expected bool"),
        (
            lambda: dyorc.run(brightness, b"no image"),
            InvalidInputError,
            "'image' is no image: 8 bytes, which begin with b'no image'",
        ),
        (lambda: dyorc.run(brightness, 3), InvalidInputError, "'image' is int 3, expected Image"),
    ],
)
def test_wrong_values_are_named(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        call()
    assert message in str(raised.value)


def test_the_path_of_a_wrong_field_is_named() -> None:
    @dyorc.workflow
    async def nested(request: list[Answer]) -> str:
        return request[0].label

    with pytest.raises(InvalidInputError, match=r"workflow 'nested': 'request': 1\.score: .*greater than or equal to 0, got -1"):
        dyorc.run(nested, [{"label": "a", "score": 1}, {"label": "b", "score": -1}])


def test_a_program_that_returns_something_else_fails() -> None:
    @dyorc.program(batched=False)
    def wrong(text: str) -> Answer:
        return {"label": text}  # type: ignore[return-value]

    @dyorc.program
    def short(text: list[str]) -> list[str]:
        return []

    @dyorc.program(batched=False)
    def label(answer: Answer) -> str:
        return answer.label

    @dyorc.workflow
    async def passes(text: str) -> str:
        return label(wrong(text))

    with pytest.raises(ProgramError, match="score: Field required"):
        dyorc.run(wrong, "x")
    with pytest.raises(ProgramError, match="0 values as 'output', expected 1, one per row"):
        dyorc.run(short, "x")
    with pytest.raises(ProgramError, match="score: Field required"):
        dyorc.run(passes, "x")


def test_a_workflow_that_returns_something_else_is_at_fault() -> None:
    @dyorc.workflow
    async def wrong(text: str) -> Answer:
        return {"label": text}

    with pytest.raises(WorkflowError, match=r"score: Field required"):
        dyorc.run(wrong, "x")


GATHER = r"; `await` each, or several Refs at once by `await dyorc\.gather\(\*refs\)`"


def test_a_forgotten_await_is_named() -> None:
    @dyorc.workflow
    async def in_a_dict(text: str) -> dict[str, int]:
        return {"n": size(text)}

    @dyorc.workflow
    async def in_a_dataclass(text: str) -> Counted:
        return Counted(size(text))

    for forgetful, advice in ((in_a_dict, "; `await` it first"), (in_a_dataclass, GATHER)):
        with pytest.raises(WorkflowError, match=f"Ref.*{advice}"):
            dyorc.run(forgetful, "x")


def test_a_list_of_refs_cannot_be_awaited_so_the_advice_is_another() -> None:
    @dyorc.workflow
    async def loose(text: str) -> Any:
        return [shout(text), shout(text)]

    @dyorc.workflow
    async def nested(text: str) -> dict[str, list[Any]]:
        return {"words": [shout(text)]}

    @dyorc.workflow
    async def other_kind(text: str) -> dict[str, str]:
        return [shout(text)]

    @dyorc.workflow
    async def numbers(text: str) -> Float[np.ndarray, " n"]:
        return [size(text), size(text)]

    for forgetful in (loose, nested, other_kind, numbers):
        with pytest.raises(WorkflowError, match=f": a Ref is in it{GATHER}"):
            dyorc.run(forgetful, "x")


def test_a_stream_in_a_list_is_collected() -> None:
    @dyorc.workflow
    async def forgetful(text: str) -> list[Any]:
        return [split(text)]

    with pytest.raises(WorkflowError, match=r"a Stream is in it; read it by `await dyorc\.collect\(stream\)`"):
        dyorc.run(forgetful, "x")


def test_declarations_that_do_not_work() -> None:
    def scalar(texts: str) -> list[str]: ...
    def untyped(x: list[Float[np.ndarray, ""]]) -> str: ...
    def default(x: Answer = 3) -> str: ...  # type: ignore[assignment]

    with pytest.raises(DefinitionError, match="takes no tensor"):
        dyorc.program(scalar)
    with pytest.raises(DefinitionError, match="expected a jaxtyping tensor, or a structured value"):
        dyorc.program(batched=False)(untyped)
    with pytest.raises(DefinitionError, match="the default of 'x', annotated Answer"):
        dyorc.program(batched=False)(default)

    def single(text: list[str]) -> str: ...

    with pytest.raises(DefinitionError, match=r"'output' is a str; .* as lists, with one for each row: list\[str\]"):
        dyorc.program(single)


def test_a_value_without_a_default_is_asked_for() -> None:
    spec = parse.signature.inputs[0]
    assert isinstance(spec, ValueSpec)
    assert spec.default is None
    with pytest.raises(InvalidInputError, match="'text' is missing"):
        dyorc.run(parse)


def test_a_type_without_a_json_schema_is_named() -> None:
    class Thing:
        pass

    class Holder(BaseModel, arbitrary_types_allowed=True):
        thing: Thing | None = None

    value = ValueType.of(Holder, "workflow 'flow'", "holder")
    assert value is not None
    with pytest.raises(DefinitionError, match=r"no JSON Schema can be made of .*Holder.*Thing.*WithJsonSchema"):
        _ = value.schema
