"""A stream that fails in a program that reads it: the error names what failed first, and how it came there."""

from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc.errors import DyOrcError, ProgramError

Number = Int[np.ndarray, ""]


@dyorc.program(batched=False)
def talk(x: Number) -> Iterator[Number]:
    yield x
    raise ValueError("no more words")


@dyorc.program(batched=False)
async def shout(words: AsyncIterator[Number]) -> AsyncIterator[Number]:
    async for word in words:
        yield word


@dyorc.program(batched=False)
def whisper(loud: Iterator[Number]) -> Iterator[Number]:
    yield from loud


@dyorc.program(batched=False)
async def add(words: AsyncIterator[Number]) -> Number:
    try:
        return sum([word async for word in words], np.array(0))
    except DyOrcError as error:
        raise KeyError("sum") from error


@dyorc.workflow
async def loud(x: Number) -> AsyncIterator[Number]:
    async for word in shout(talk(x)):
        yield word


@dyorc.workflow
async def quiet(x: Number) -> AsyncIterator[Number]:
    async for word in whisper(shout(talk(x))):
        yield word


@dyorc.workflow
async def added(x: Number) -> Number:
    return add(talk(x))


def error_of(workflow: dyorc.Workflow) -> ProgramError:
    with pytest.raises(ProgramError) as caught:
        list(dyorc.run(workflow, np.array(1)))
    return caught.value


def test_the_error_names_the_program_that_failed_first_and_the_stream() -> None:
    error = error_of(loud)
    assert (error.program, error.error_type) == ("talk", "ValueError")
    text = "program 'talk' failed: ValueError: no more words; it reached program 'shout' through its stream 'words'"
    assert str(error) == text


def test_it_names_each_program_that_it_passed() -> None:
    error = error_of(quiet)
    assert error.program == "talk"
    assert str(error).endswith("through its stream 'words'; it reached program 'whisper' through its stream 'loud'")


def test_a_program_that_raises_another_error_is_named_with_the_reason() -> None:
    error = error_of(added)
    assert (error.program, error.error_type) == ("add", "KeyError")
    assert "its stream 'words' had failed: program 'talk' failed: ValueError: no more words" in str(error)
