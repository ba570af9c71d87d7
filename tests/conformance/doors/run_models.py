"""Workflows of plain values for `/run`: an object, parts, a picture."""

from collections.abc import AsyncIterator

import PIL.Image
from pydantic import BaseModel, Field

import dyorc


class Options(BaseModel):
    """How words are counted."""

    lower: bool = True
    most: int = Field(default=10, ge=1)


class Count(BaseModel):
    """What was counted."""

    words: list[str]
    total: int


@dyorc.program(batched=False)
def count_words(text: str, options: Options) -> Count:
    """Splits a text."""
    words = (text.lower() if options.lower else text).split()
    return Count(words=words[: options.most], total=len(words))


@dyorc.workflow
async def words(text: str, options: Options = Options()) -> Count:  # noqa: B008
    """Counts words."""
    return count_words(text, options)


@dyorc.workflow
async def spell(text: str) -> AsyncIterator[str]:
    """Yields one word after another."""
    for word in (await count_words(text, Options())).words:
        yield word


@dyorc.program(batched=False)
def shrink(image: PIL.Image.Image, side: int) -> PIL.Image.Image:
    """Makes a picture a square."""
    return image.resize((side, side))


@dyorc.workflow
async def thumbnail(image: PIL.Image.Image, side: int = 32) -> PIL.Image.Image:
    """Shrinks a picture."""
    return shrink(image, side)
