"""Workflows that take and return structured values."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
import PIL.Image
from jaxtyping import Float
from pydantic import BaseModel, Field

import dyorc


@dataclass
class Letter:
    kind: str
    words: list[str]


class Options(BaseModel):
    """How to read.

    Attributes:
        lower: Whether to ignore case.
    """

    lower: bool = True
    most: int = Field(default=100, ge=1)


class Verdict(BaseModel):
    label: str
    words: int
    score: float


@dyorc.program(batched=False)
def read(text: str, options: Options) -> Letter:
    words = (text.lower() if options.lower else text).split()[: options.most]
    return Letter("invoice" if "invoice" in words else "letter", words)


@dyorc.program
def grade(letter: list[Letter]) -> list[Verdict]:
    return [Verdict(label=each.kind, words=len(each.words), score=len(each.words) / 10) for each in letter]


@dyorc.workflow
async def judge(text: str, options: Options = Options()) -> Verdict:  # noqa: B008
    letter = read(text, options)
    if await dyorc.when(letter, lambda value: value.kind == "invoice"):
        return grade(letter)
    return Verdict(label="letter", words=len((await letter).words), score=0)


@dyorc.program(batched=False)
def shrink(image: PIL.Image.Image, side: int = 4) -> PIL.Image.Image:
    return image.convert("RGB").resize((side, side), PIL.Image.Resampling.NEAREST)


@dyorc.workflow
async def thumbnail(image: PIL.Image.Image, side: int = 4) -> PIL.Image.Image:
    return shrink(image, side)


@dyorc.workflow
async def note(number: int, text: str | None = None, scores: list[float] | None = None) -> str:
    return f"{number} {text!r} {scores}"


@dyorc.program(batched=False)
def look(image: PIL.Image.Image, note: str) -> tuple[str, Float[np.ndarray, "3"]]:
    pixels = np.asarray(image.convert("RGB"), np.float32)
    return f"{image.width} x {image.height} {note}", pixels.mean((0, 1))


@dyorc.workflow
async def describe(image: PIL.Image.Image, note: str = "") -> tuple[str, Float[np.ndarray, "3"]]:
    text, colour = look(image, note)
    return text, colour


@dyorc.program(batched=False)
async def spell(text: str) -> AsyncIterator[dict[str, str]]:
    for word in text.split():
        yield {"word": word}


@dyorc.workflow
async def tell(text: str) -> AsyncIterator[dict[str, str]]:
    async for word in spell(text):
        yield word


@dyorc.program(batched=False)
def weigh(file: dyorc.File, factor: float) -> dict[str, str | float]:
    return {"type": file.content_type, "weight": len(file.data) * factor}


@dyorc.workflow
async def parcel(file: dyorc.File, factor: float = 1.0) -> dict[str, str | float]:
    return weigh(file, factor)
