"""The programs that random workflows call. Generated workflows import this file under the name `programs`.

Each is elementwise and applies one operation, so that neither the rest of a batch nor the order of two NaN operands matters. In
the reference of the tests, `dyorc` and `effects` are other modules: nothing here may know who runs it. Programs that yield may
run many calls at once, so that no workflow waits for a place that it holds itself.
"""

import enum
import struct
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypedDict

import effects
import numpy as np
from jaxtyping import Float, Int

import dyorc

V = Float[np.ndarray, " n"]
Vectors = Float[np.ndarray, "batch n"]
Ticket = Int[np.ndarray, ""]
_ON_RAY: dict[str, Any] = {"num_cpus": 0}
_YIELDS: dict[str, Any] = {"batched": False, "max_ongoing": 512, "ray_actor_options": _ON_RAY}


class Level(enum.IntEnum):
    """Members that are equal to numbers."""

    ZERO = 0
    ONE = 1


class Colour(enum.Enum):
    """Members that are equal to nothing else."""

    RED = 1
    BLUE = 2


class Word(enum.StrEnum):
    """Members that are equal to texts."""

    ONE = "1"
    RED = "red"


class Name(str):
    """A text of its own class."""

    __slots__ = ()


NAN = float("nan")
KEYS: tuple[Any, ...] = (
    0, 0.0, -0.0, False, Level.ZERO, 1, 1.0, True, Level.ONE, "1", Name("1"), Word.ONE, Name("red"), "red", Word.RED, None, NAN,
    -NAN, 2.5, -3, "", Colour.RED, Colour.BLUE, (), (0,), (0.0,), (-0.0,), (False,), (1, "1"), (True, Name("1")), (1.0, "1"),
    (NAN, None), (NAN, Level.ONE), ((0.0, 1), Colour.RED), ((-0.0, True), Colour.RED), float("inf"), 2**70, 1e30,
)  # fmt: skip
"""Keys of decisions, among them many that are equal and not the same."""


def pick(value: Any, size: int) -> int:
    """Returns a number below `size` that depends on every bit of a value."""
    return zlib.crc32(np.ascontiguousarray(value).tobytes()) % size


def fresh(key: Any) -> Any:
    """Returns an equal key that is another object, where Python can make one."""
    if isinstance(key, tuple):
        return tuple([fresh(item) for item in key])
    return struct.unpack("<d", struct.pack("<d", key))[0] if type(key) is float else key


def spell(key: Any) -> str:
    """Returns a text that tells apart all keys that are not the same."""
    if isinstance(key, tuple):
        return f"({','.join([spell(item) for item in key])})"
    bits = struct.pack("<d", key).hex() if isinstance(key, float) else ""
    return f"{type(key).__name__}:{key!r}:{bits}"


def _keep_nans(x: Any, result: Any) -> Any:
    """Returns the result, but for NaN in the input that NaN with its bits."""
    return np.where(np.isnan(x), x, result)


@dyorc.program(max_batch_size=8, ray_actor_options=_ON_RAY)
def scale(x: Vectors, by: float = 2.0) -> Vectors:
    with np.errstate(all="ignore"):
        return _keep_nans(x, x * np.float32(by))


@dyorc.program(max_batch_size=5, ray_actor_options=_ON_RAY)
def shift(x: Vectors, by: float = 1.0) -> Vectors:
    """Changes its input in place."""
    with np.errstate(all="ignore"):
        x[:] = _keep_nans(x, x + np.float32(by))
    return x


@dyorc.program(max_batch_size=8, ray_actor_options=_ON_RAY)
def angle(x: Vectors, by: float) -> Vectors:
    """Tells 0.0 and -0.0 apart."""
    return _keep_nans(x, np.arctan2(x, np.float32(by)))


@dyorc.program(max_batch_size=8, ray_actor_options=_ON_RAY)
def signed(x: Vectors, by: float) -> Vectors:
    """Tells apart the signs of 0.0 and of NaN."""
    return np.copysign(x, np.float32(by))


@dyorc.program(max_batch_size=8, ray_actor_options=_ON_RAY)
def tag(x: Vectors, text: str = "", number: int = 0, flag: bool = False) -> Vectors:
    """Mixes in every character of its parameters' texts."""
    with np.errstate(all="ignore"):
        return _keep_nans(x, x + np.float32(zlib.crc32(repr((text, number, flag)).encode()) % 17 - 8))


@dyorc.program(max_batch_size=4, ray_actor_options=_ON_RAY)
def mix(x: Vectors, y: Vectors) -> Vectors:
    with np.errstate(all="ignore"):
        return _keep_nans(x, _keep_nans(y, x - y))


@dyorc.program(max_batch_size=3, num_replicas=2, ray_actor_options=_ON_RAY)
def wait(x: Vectors) -> Vectors:
    """Takes a while, so that decisions stay open."""
    time.sleep(0.002)
    return x


@dyorc.program(max_batch_size=8, ray_actor_options=_ON_RAY)
def whole(x: Vectors) -> Int[np.ndarray, "batch n"]:
    return x.view(np.int32).astype(np.int64) % 1000


@dyorc.program(max_batch_size=8, ray_actor_options=_ON_RAY)
def real(x: Int[np.ndarray, "batch n"]) -> Vectors:
    return (x % 41 - 20).astype(np.float32)


@dyorc.program(max_batch_size=8, ray_actor_options=_ON_RAY)
def first(x: Vectors) -> Float[np.ndarray, " batch"]:
    return x[:, 0].copy()


class Halves(TypedDict):
    """The outputs of `halve`."""

    low: Vectors
    high: Vectors


@dyorc.program(max_batch_size=8, ray_actor_options=_ON_RAY)
def halve(x: Vectors) -> Halves:
    return {"low": _keep_nans(x, np.minimum(x, np.float32(1))), "high": _keep_nans(x, np.maximum(x, np.float32(1)))}


@dyorc.program(batched=False, ray_actor_options=_ON_RAY)
def alone(x: V) -> V:
    return np.negative(x)


@dyorc.program(max_batch_size=8, pad=dyorc.pad(n=(4, 16, 8192)), ray_actor_options=_ON_RAY)
def padded(x: Vectors) -> Vectors:
    return _keep_nans(x, np.floor(x))


@dyorc.program(max_batch_size=4, ray_actor_options=_ON_RAY)
def risky(x: Vectors, kind: str = "ValueError") -> Vectors:
    """Raises for the whole batch if one of it does not suit."""
    for row in x:
        if pick(row, 2):
            error: type[Exception] = {"ValueError": ValueError, "KeyError": KeyError, "Odd": type("Odd", (Exception,), {})}[kind]
            raise error(f"{row[0]} does not suit")
    return np.negative(x)


@dyorc.program(max_batch_size=4, pure=False, ray_actor_options=_ON_RAY)
def record(x: Vectors, ticket: Int[np.ndarray, " batch"], place: int = 0) -> Vectors:
    """Has an effect, which must happen once."""
    effects.note([f"{number} {place} {zlib.crc32(row.tobytes())}" for number, row in zip(ticket.tolist(), x, strict=True)])
    return np.negative(x)


@dyorc.program(max_batch_size=1, pure=False, ray_actor_options=_ON_RAY)
def pay(x: Vectors, ticket: Int[np.ndarray, " batch"], text: str = "") -> Vectors:
    """Has an effect, or raises before it: alone, since what is not repeated fails with its whole batch."""
    for row in x:
        if pick(row, 4) == 0:
            raise ValueError(f"{row[0]} cannot be paid")
    effects.note([f"{number} {text} {zlib.crc32(row.tobytes())}" for number, row in zip(ticket.tolist(), x, strict=True)])
    return np.negative(x)


@dyorc.program(**_YIELDS)
async def later(x: V) -> V:
    """Waits, for something else."""
    await effects.pause()
    return np.negative(x)


@dyorc.program(**_YIELDS)
def climb(x: V, length: int = 3) -> Iterator[V]:
    """Changes what it has yielded, once that is sent."""
    for number in range(length):
        with np.errstate(all="ignore"):
            part = _keep_nans(x, x + np.float32(number)).astype(np.float32)
        yield part
        part[:] = 99


@dyorc.program(**_YIELDS)
async def tick(x: V, length: int = 3, text: str = "") -> AsyncIterator[V]:
    """Raises before a part that does not suit."""
    for number in range(length):
        part = np.copysign(x, np.float32(1 - 2 * (number % 2)))
        if pick(part, 5 + number) == 0:
            raise ValueError(f"part {number} {text}does not suit")
        await effects.pause()
        yield part


@dyorc.program(**_YIELDS)
async def along(parts: AsyncIterator[V], length: int = 1000) -> AsyncIterator[V]:
    """Reads no more parts than it yields."""
    if length:
        async for part in parts:
            yield np.negative(part)
            length -= 1
            if not length:
                break


@dyorc.program(**_YIELDS)
async def weave(parts: AsyncIterator[V], others: AsyncIterator[V]) -> AsyncIterator[V]:
    """Takes turns, until one of both ends."""
    async for part in parts:
        yield part
        other = await anext(others, None)
        if other is None:
            break
        yield other


@dyorc.program(**_YIELDS)
async def fold(parts: AsyncIterator[V], x: V) -> V:
    """Depends on each part and on their order."""
    async for part in parts:
        with np.errstate(all="ignore"):
            x = _keep_nans(x, x + np.float32(pick(part.tobytes() + x.tobytes(), 9) - 4)).astype(np.float32)
    return x


@dyorc.program(**_YIELDS)
async def leading(parts: AsyncIterator[V], x: V) -> V:
    """Reads one part, if there is one."""
    return await anext(parts, x)


@dyorc.program(pure=False, **_YIELDS)
async def announce(x: V, ticket: Ticket, length: int = 2, text: str = "") -> AsyncIterator[V]:
    """Has an effect for each part, which must happen once, whoever reads it."""
    for number in range(length):
        if pick(x, 7) == number:
            raise ValueError(f"part {number} cannot be announced")
        effects.note([f"{int(ticket)} {text}{number} {zlib.crc32(x.tobytes())}"])
        await effects.pause()
        yield x


@dyorc.program(pure=False, **_YIELDS)
async def jot(parts: AsyncIterator[V], ticket: Ticket, text: str = "") -> Int[np.ndarray, ""]:
    """Has an effect for each part that it reads."""
    number = 0
    async for part in parts:
        effects.note([f"{int(ticket)} {text}{number} {zlib.crc32(part.tobytes())}"])
        number += 1
    return np.int64(number)


State = list[int]


def _next(x: Any, state: State, number: int) -> State:
    return [zlib.crc32(f"{x.tobytes().hex()} {number}".encode(), state[0]), state[1] + 1]


def _seen(x: Any, state: State) -> Any:
    with np.errstate(all="ignore"):
        return _keep_nans(x, x + np.float32(state[0] % 17 - 8 + state[1])).astype(np.float32)


@dyorc.program(max_batch_size=4, group="states", ray_actor_options=_ON_RAY)
def begin(x: Vectors) -> dyorc.Resident[State]:
    """Begins a state."""
    return [_next(row, [0, 0], 0) for row in x]


@dyorc.program(max_batch_size=3, group="states", ray_actor_options=_ON_RAY)
def extend(x: Vectors, state: dyorc.Resident[State], number: int = 0) -> tuple[Vectors, dyorc.Resident[State]]:
    """Makes a new state, and leaves the one it got as it was."""
    states = [_next(row, old, number) for row, old in zip(x, state, strict=True)]
    return np.stack([_seen(row, each) for row, each in zip(x, states, strict=True)]), states


@dyorc.program(max_batch_size=3, group="states", ray_actor_options=_ON_RAY)
def overwrite(x: Vectors, state: dyorc.Resident[State, dyorc.Consumed], number: int = 0) -> tuple[Vectors, dyorc.Resident[State]]:
    """Changes the state that it gets."""
    for row, each in zip(x, state, strict=True):
        each[:] = _next(row, each, number + 1)
    return np.stack([_seen(row, each) for row, each in zip(x, state, strict=True)]), state


@dyorc.program(max_batch_size=4, group="states", ray_actor_options=_ON_RAY)
def meet(x: Vectors, first: dyorc.Resident[State], second: dyorc.Resident[State]) -> Vectors:
    """Depends on two states and on their order."""
    both = [[a[0] * 31 + b[0], a[1] - b[1]] for a, b in zip(first, second, strict=True)]
    return np.stack([_seen(row, each) for row, each in zip(x, both, strict=True)])


@dyorc.program(max_batch_size=4, group="states", ray_actor_options=_ON_RAY)
def strain(x: Vectors, state: dyorc.Resident[State]) -> tuple[Vectors, dyorc.Resident[State]]:
    """Raises for the whole batch if one of it does not suit."""
    for row in x:
        if pick(row, 3) == 0:
            raise ValueError(f"{row[0]} does not suit a state")
    return x, [_next(row, old, 7) for row, old in zip(x, state, strict=True)]
