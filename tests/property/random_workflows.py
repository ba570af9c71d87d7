"""Random workflows: small programs of statements, each run by DyOrc and by a plain interpreter that says what it has to
return.

A workflow is a tree of statements over registers. A statement names registers by number, modulo how many there are, so that every
tree means something. All numbers are whole and below 17, so that float32 is exact.
"""

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st
from jaxtyping import Float

import dyorc
from dyorc.errors import ProgramError

Vector = Float[np.ndarray, "2"]
Vectors = Float[np.ndarray, "batch 2"]
Numbers: TypeAlias = tuple[float, ...]

POISON = 13.0
_SIZE = 17

# Programs


@dyorc.program(max_batch_size=3, execution_timeout_s=1e6)
def step(x: Vectors) -> Vectors:
    return (3 * x + 1) % _SIZE


@dyorc.program(max_batch_size=4, execution_timeout_s=1e6)
def mix(x: Vectors, y: Vectors) -> Vectors:
    return (x + 5 * y[:, ::-1]) % _SIZE


@dyorc.program(max_batch_size=4, execution_timeout_s=1e6)
def picky(x: Vectors) -> Vectors:
    """Raises for the whole batch if one input is poison."""
    if (x == POISON).any():
        raise ValueError("poison")
    return (x + 1) % _SIZE


@dyorc.program(max_batch_size=2, execution_timeout_s=1e6, pure=False)
def send(x: Vectors) -> Vectors:
    """Has an effect that must not be repeated."""
    return x


@dyorc.program(max_batch_size=2, execution_timeout_s=1e6, pure=False, idempotent=True)
def put(x: Vectors) -> Vectors:
    """Has an effect that may be repeated."""
    return (x + 2) % _SIZE


PROGRAMS = (step, mix, picky, send, put)

# Statements


@dataclass(frozen=True)
class Do:
    """Calls a program."""

    program: dyorc.Program
    at: int
    other: int = 0


@dataclass(frozen=True)
class Look:
    """Awaits a value and calls `step` of what it saw."""

    at: int


@dataclass(frozen=True)
class Fan:
    """Calls `step` of several registers and awaits all of them."""

    at: tuple[int, ...]


@dataclass(frozen=True)
class Sift:
    """Decides about a list of registers at once, and calls `step` of the small ones."""

    at: tuple[int, ...]
    limit: int


@dataclass(frozen=True)
class If:
    at: int
    limit: int
    then: "Block"
    otherwise: "Block"


@dataclass(frozen=True)
class Match:
    at: int
    blocks: tuple["Block", ...]


@dataclass(frozen=True)
class Loop:
    """Repeats as long as the last register is small, a few times at most."""

    limit: int
    max_turns: int
    body: "Block"


@dataclass(frozen=True)
class Try:
    """Catches poison."""

    body: "Block"
    handler: "Block"


@dataclass(frozen=True)
class Sub:
    """Calls one of the workflows that come before this one, or `step` if there is none."""

    index: int
    at: int


@dataclass(frozen=True)
class Stop:
    """Returns a register."""

    at: int


@dataclass(frozen=True)
class Emit:
    """Yields a register as a part of the answer."""

    at: int


Statement: TypeAlias = Do | Look | Fan | Sift | If | Match | Loop | Try | Sub | Stop | Emit
Block: TypeAlias = tuple[Statement, ...]
Tree: TypeAlias = tuple[Block, ...]
"""The last tree is the workflow; it may call those before it."""

# As DyOrc runs them


def workflow_of(tree: Tree) -> dyorc.Workflow:
    """Returns the workflow of a tree."""
    made: list[dyorc.Workflow] = []
    for number, block in enumerate(tree):
        made.append(_workflow_of(f"tree-{number}", block, tuple(made)))
    return made[-1]


def stream_of(tree: Tree) -> dyorc.Workflow:
    """Returns the workflow of a tree whose last block yields parts. What it returns does not matter."""
    made: list[dyorc.Workflow] = []
    for number, block in enumerate(tree[:-1]):
        made.append(_workflow_of(f"tree-{number}", block, tuple(made)))
    others = tuple(made)
    programs = {step, *_programs_in(tree[-1], others)}

    @dyorc.workflow(programs=[program for program in PROGRAMS if program in programs])
    async def stream(x: Vector) -> AsyncIterator[Vector]:
        async for part in _stream(tree[-1], [x], others, stopped := []):
            yield part
        assert len(stopped) <= 1

    return stream


def _workflow_of(name: str, block: Block, others: tuple[dyorc.Workflow, ...]) -> dyorc.Workflow:
    programs = {step, *_programs_in(block, others)}

    @dyorc.workflow(name=name, programs=[program for program in PROGRAMS if program in programs])
    async def tree(x: Vector) -> Vector:
        registers: list[Any] = [x]
        result = await _run(block, registers, others)
        return registers[-1] if result is None else result

    return tree


def _programs_in(block: Block, others: Sequence[dyorc.Workflow]) -> set[dyorc.Program]:
    found: set[dyorc.Program] = set()
    for statement in block:
        match statement:
            case Do(program=program):
                found.add(program)
            case Sub(index=index) if others:
                found.update(others[index % len(others)].programs)
            case If(then=then, otherwise=otherwise):
                found |= _programs_in(then, others) | _programs_in(otherwise, others)
            case Match(blocks=blocks):
                found.update(*(_programs_in(inner, others) for inner in blocks))
            case Loop(body=body):
                found |= _programs_in(body, others)
            case Try(body=body, handler=handler):
                found |= _programs_in(body, others) | _programs_in(handler, others)
            case _:
                pass
    return found


async def _run(block: Block, registers: list[Any], others: Sequence[dyorc.Workflow]) -> Any:
    """Runs statements and returns what they returned, or None."""
    for statement in block:
        result = await _run_one(statement, registers, others)
        if result is not None:
            return result
    return None


async def _run_one(statement: Statement, registers: list[Any], others: Sequence[dyorc.Workflow]) -> Any:
    size = len(registers)
    match statement:
        case Do(program=program, at=at, other=other):
            x = registers[at % size]
            registers.append(program(x, registers[other % size]) if len(program.signature.inputs) == 2 else program(x))
        case Look(at=at):
            registers.append(step(await registers[at % size]))
        case Fan(at=places):
            values = await dyorc.gather(*[step(registers[at % size]) for at in places])
            registers.extend([step(value) for value in values])
        case Sift(at=places, limit=limit):
            refs = [registers[at % size] for at in places]
            are_small = await dyorc.when(refs, _is_below(limit))
            registers.extend([step(ref) for ref, is_small in zip(refs, are_small, strict=True) if is_small])
        case If(at=at, limit=limit, then=then, otherwise=otherwise):
            ref = registers[at % size]
            if limit % 2:
                is_taken = await dyorc.when(ref, _is_below(limit))
            else:
                is_taken = await dyorc.when(ref, _is_below(limit), likely=limit > _SIZE)
            return await _run(then if is_taken else otherwise, registers, others)
        case Match(at=at, blocks=blocks):
            way = await dyorc.choose(registers[at % size], _way)
            return await _run(blocks[way % len(blocks)], registers, others)
        case Loop(limit=limit, max_turns=max_turns, body=body):
            for _ in range(max_turns):
                if not await dyorc.when(registers[-1], _is_below(limit)):
                    break
                result = await _run(body, registers, others)
                if result is not None:
                    return result
        case Try(body=body, handler=handler):
            try:
                return await _run(body, registers, others)
            except ProgramError as error:
                if error.error_type != "ValueError":
                    raise
                return await _run(handler, registers, others)
        case Sub(index=index, at=at):
            callee = others[index % len(others)] if others else step
            registers.append(callee(registers[at % size]))
        case Stop(at=at):
            return registers[at % size]
    return None


async def _stream(
    block: Block, registers: list[Any], others: Sequence[dyorc.Workflow], stopped: list[Stop]
) -> AsyncIterator[Any]:
    """Runs statements and yields what they yield; notes whether they returned."""
    for statement in block:
        blocks: list[Block] = []
        match statement:
            case Emit(at=at):
                yield registers[at % len(registers)]
            case Stop():
                stopped.append(statement)
            case If(at=at, limit=limit, then=then, otherwise=otherwise):
                is_taken = await dyorc.when(registers[at % len(registers)], _is_below(limit))
                blocks = [then if is_taken else otherwise]
            case Match(at=at, blocks=ways):
                way = await dyorc.choose(registers[at % len(registers)], _way)
                blocks = [ways[way % len(ways)]]
            case Loop(limit=limit, max_turns=max_turns, body=body):
                for _ in range(max_turns):
                    if stopped or not await dyorc.when(registers[-1], _is_below(limit)):
                        break
                    async for part in _stream(body, registers, others, stopped):
                        yield part
            case Try(body=body, handler=handler):
                try:
                    async for part in _stream(body, registers, others, stopped):
                        yield part
                except ProgramError as error:
                    if error.error_type != "ValueError":
                        raise
                    blocks = [handler]
            case _:
                await _run_one(statement, registers, others)
        for inner in blocks:
            async for part in _stream(inner, registers, others, stopped):
                yield part
        if stopped:
            return


def _is_below(limit: int) -> Any:
    return lambda x: bool(x.sum() < limit)


def _way(x: np.ndarray) -> int:
    return int(x[0] + x[1]) % 5


# Their meaning


class Poisoned(Exception):
    """Reads a value that does not exist, because `picky` raised."""


_Value: TypeAlias = Numbers | None
"""None stands for a value that does not exist."""


@dataclass
class Meaning:
    """What a workflow has to do.

    Attributes:
        answer: What it returns; None if it fails because of poison.
        parts: What a streaming one yields before it ends or fails.
        is_cut: Whether it fails at a part, so that what comes after may not be done.
        effects: Program and input of each call that has an effect.
        num_calls: Calls of programs and workflows.
    """

    answer: _Value
    effects: Counter[tuple[str, Numbers]]
    num_calls: int
    parts: tuple[Numbers, ...] = ()
    is_cut: bool = False


def meaning_of_stream(tree: Tree, x: Numbers) -> Meaning:
    """Runs a tree that yields directly."""
    plain = _Plain(tree)
    answer = plain.workflow(len(tree) - 1, x, is_streaming=True)
    good = tuple(itertools.takewhile(lambda part: part is not None, plain.parts))
    is_cut = len(good) < len(plain.parts)
    return Meaning(None if is_cut else answer, plain.effects, plain.num_calls, good, is_cut)


def meaning_of(tree: Tree, x: Numbers) -> Meaning:
    """Runs a tree directly."""
    plain = _Plain(tree)
    answer = plain.workflow(len(tree) - 1, x)
    return Meaning(answer, plain.effects, plain.num_calls)


def evaluate(program: dyorc.Program, *operands: Numbers) -> _Value:
    """Returns what a program returns for one call."""
    arrays = [np.array([operand], np.float32) for operand in operands]
    try:
        (row,) = program.factory()(*arrays)
    except ValueError:
        return None
    return tuple(row.tolist())


class _Plain:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.effects: Counter[tuple[str, Numbers]] = Counter()
        self.num_calls = 0
        self.parts: list[_Value] = []

    def workflow(self, index: int, x: _Value, is_streaming: bool = False) -> _Value:
        registers: list[_Value] = [x]
        try:
            result = self._run(self._tree[index], registers, index)
        except Poisoned:
            return None
        if is_streaming:
            return ()
        return registers[-1] if result is None else result[0]

    def _call(self, program: dyorc.Program, *operands: _Value) -> _Value:
        self.num_calls += 1
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands):
            return None
        if not program.options.pure:
            self.effects[program.name, known[0]] += 1
        return evaluate(program, *known)

    def _run(self, block: Block, registers: list[_Value], number: int) -> tuple[_Value] | None:
        for statement in block:
            result = self._run_one(statement, registers, number)
            if result is not None:
                return result
        return None

    def _run_one(self, statement: Statement, registers: list[_Value], number: int) -> tuple[_Value] | None:
        size = len(registers)
        match statement:
            case Do(program=program, at=at, other=other):
                operands = (registers[at % size], registers[other % size])[: len(program.signature.inputs)]
                registers.append(self._call(program, *operands))
            case Look(at=at):
                registers.append(self._call(step, _seen(registers[at % size])))
            case Fan(at=places):
                values = [self._call(step, registers[at % size]) for at in places]
                registers.extend([self._call(step, value) for value in [_seen(value) for value in values]])
            case Sift(at=places, limit=limit):
                operands = [registers[at % size] for at in places]
                are_small = [sum(seen) < limit for seen in [_seen(operand) for operand in operands]]
                registers.extend([self._call(step, each) for each, is_small in zip(operands, are_small, strict=True) if is_small])
            case If(at=at, limit=limit, then=then, otherwise=otherwise):
                is_taken = sum(_seen(registers[at % size])) < limit
                return self._run(then if is_taken else otherwise, registers, number)
            case Match(at=at, blocks=blocks):
                way = int(sum(_seen(registers[at % size]))) % 5
                return self._run(blocks[way % len(blocks)], registers, number)
            case Loop(limit=limit, max_turns=max_turns, body=body):
                for _ in range(max_turns):
                    if sum(_seen(registers[-1])) >= limit:
                        break
                    result = self._run(body, registers, number)
                    if result is not None:
                        return result
            case Try(body=body, handler=handler):
                try:
                    return self._run(body, registers, number)
                except Poisoned:
                    return self._run(handler, registers, number)
            case Sub(index=index, at=at):
                x = registers[at % size]
                if not number:
                    registers.append(self._call(step, x))
                else:
                    self.num_calls += 1
                    registers.append(self.workflow(index % number, x))
            case Emit(at=at):
                self.parts.append(registers[at % size])
            case Stop(at=at):
                return (registers[at % size],)
        return None


def _seen(value: _Value) -> Numbers:
    if value is None:
        raise Poisoned
    return value


# How they are drawn

_places = st.integers(0, 5)
_limits = st.integers(6, 30)
_steps = st.one_of(
    st.builds(Do, st.sampled_from([step, mix, mix, picky, send, put]), _places, _places),
    st.builds(Look, _places),
    st.tuples(st.booleans(), st.tuples(_places, _places), _limits).map(
        lambda drawn: Fan(drawn[1]) if drawn[0] else Sift(drawn[1], drawn[2])
    ),
    st.builds(Sub, st.integers(0, 1), _places),
)


_Steps: TypeAlias = st.SearchStrategy[Statement]


def _blocks(depth: int, steps: _Steps = _steps) -> st.SearchStrategy[Block]:
    return st.lists(_statements(depth, steps), min_size=1, max_size=3).map(tuple)


def _statements(depth: int, steps: _Steps) -> st.SearchStrategy[Statement]:
    if not depth:
        return st.one_of(steps, steps, steps, st.builds(Stop, _places))
    inner = st.deferred(lambda: _blocks(depth - 1, steps))
    return st.one_of(
        steps,
        st.builds(If, _places, _limits, inner, inner),
        st.builds(Match, _places, st.tuples(inner, inner, inner)),
        st.builds(Loop, _limits, st.integers(1, 3), inner),
        st.builds(Try, inner, inner),
    )


trees: st.SearchStrategy[Tree] = st.tuples(_blocks(1), _blocks(3)) | st.tuples(_blocks(1), _blocks(1), _blocks(2))
_part: _Steps = st.builds(Emit, _places | st.just(-1))
_streaming_steps = st.one_of(_steps, st.builds(Do, st.just(picky), st.just(0)), _part, _part, _part)
_loops: _Steps = st.builds(Loop, st.just(2 * _SIZE), st.integers(2, 4), _blocks(1, _streaming_steps))
_streaming_blocks = st.tuples(
    _blocks(0, _streaming_steps) | _loops.map(lambda loop: (loop,)), _blocks(3, _streaming_steps), st.tuples(_part | _steps)
)
streams: st.SearchStrategy[Tree] = st.tuples(_blocks(1), _streaming_blocks.map(lambda blocks: sum(blocks, ())))
"""Trees whose last block yields parts."""
inputs: st.SearchStrategy[Numbers] = st.tuples(*[st.integers(0, _SIZE - 1).map(float)] * 2)
poisonous_inputs: st.SearchStrategy[Numbers] = inputs | st.tuples(st.just(POISON), st.integers(0, _SIZE - 1).map(float))
