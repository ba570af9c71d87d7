"""Which types a form's field may give as a bare text; pydantic's own reading of that text is the reference."""

import datetime
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from dyorc.gateway.codec.schema_texts import takes_text


class Colour(enum.Enum):
    RED = "1"


class Point(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (str | None, "5"),
        (int | str, "true"),
        (Annotated[str, Field(min_length=1)] | None, "[1]"),
        (Literal["1", "2"], "1"),
        (Literal["1", 2] | None, "1"),
        (Colour, "1"),
        (Colour | None, "1"),
        (uuid.UUID | None, "12345678123456781234567812345678"),
        (datetime.date | None, "2026-01-02"),
        (Decimal | None, "1.10"),
    ],
)
def test_types_with_a_text(annotation: Any, text: str) -> None:
    adapter = TypeAdapter(annotation)
    assert takes_text(adapter.json_schema())
    adapter.validate_python(text)


@pytest.mark.parametrize("annotation", [int | None, float, bool | None, list[str], dict[str, str], Point, Point | None, Any])
def test_types_without_one(annotation: Any) -> None:
    assert not takes_text(TypeAdapter(annotation).json_schema())
