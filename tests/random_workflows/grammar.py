"""Writes random workflows as source code.

A workflow computes on a few variables: `a`, `b`, `c` and `x` are Refs, `v` and `w` values, `k` is the last key and `flag` the
last bool; in some workflows `s` and `t` are streams, and `r` and `q` residents. Each statement changes some of them, so that
every order of statements means something. The same seed writes the same case.
"""

import random
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tests.random_workflows.cases import Case, Request
from tests.random_workflows.expressions import TEXTS, Expressions
from tests.random_workflows.streams_and_residents import ResidentExpressions, StreamExpressions

_HEAD = "from collections.abc import AsyncIterator\n\nimport numpy as np\n\nimport dyorc\nfrom programs import *\n"
_CATCHES = ("dyorc.ProgramError", "dyorc.DyOrcError", "Exception")
_STATICS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "by": ("float", (0.0, -0.0, 1.0, -1.0, 2.5)),
    "text": ("str", ("1", "red", "", "True", "0.0")),
    "number": ("int", (0, 1, -1, 2**40)),
    "flag": ("bool", (False, True)),
}
_VECTOR = np.array([0.0, -0.0, 1.0, -1.0, 2.5, 3.0, -4.5, 7.0, 1e30, np.inf, -np.inf], np.float32)
_NANS = (0x7FC00000, 0xFFC00000, 0x7FC00123)


def generate(seed: int, num_requests: int = 8) -> Case:
    """Writes the workflow of a seed, and its requests."""
    rng = random.Random(seed)
    name = f"flow{seed}"
    parts: list[_Writer] = []
    for at in range(rng.choice([0, 0, 1, 1, 2])):
        parts.append(_Writer(rng, name, f"{name}_part{at}", parts))
    main = _Writer(rng, name, name, parts)
    statics = main.statics
    source = "\n\n".join([_HEAD, *[part.write() for part in parts], main.write()])
    pool = [_vector(rng, size) for size in (rng.choice([1, 3, 3, 4, 17, 5000 if rng.random() < 0.2 else 2]),) for _ in range(5)]
    requests = [
        Request(rng.choice(pool), 1000 * seed + at, {each: rng.choice(_STATICS[each][1]) for each in statics})
        for at in range(num_requests)
    ]
    return Case(name, source, tuple(requests))


def _vector(rng: random.Random, size: int) -> np.ndarray[Any, Any]:
    vector = np.array([rng.choice(_VECTOR) for _ in range(size)], np.float32)
    if rng.random() < 0.3:
        vector[rng.randrange(size)] = struct.unpack("<f", struct.pack("<I", rng.choice(_NANS)))[0]
    return vector


class _Writer:
    """Writes one workflow.

    Args:
        case: Name of the case.
        name: Of the workflow.
        parts: Those of the workflows before this one, which it may call.
    """

    def __init__(self, rng: random.Random, case: str, name: str, parts: "Sequence[_Writer]") -> None:
        self._rng = rng
        self._some = Expressions(rng)
        self._case = case
        self.name = name
        self._parts = tuple(parts)
        self._budget = rng.randrange(5, 22)
        self._num_places = 0
        self._depth = 0
        self._lines: list[str] = []
        self._has_helper = False
        self._is_in_helper = False
        self.is_pair = not parts and rng.random() < 0.3 and name == case
        self.statics = [each for each in _STATICS if rng.random() < 0.4]
        self._streams = StreamExpressions(rng, self._some) if rng.random() < 0.5 else None
        self._residents = ResidentExpressions(rng, self._some) if rng.random() < 0.4 else None
        self.is_streaming = self._streams is not None and rng.random() < 0.5
        self.takes_stream = self._streams is not None and name != case and rng.random() < 0.4
        # A workflow that yields goes only as far as somebody reads, so called by another it may have no effect.
        self.has_effects = name == case or (not self.is_streaming and rng.random() < 0.6)

    def write(self) -> str:
        """Returns the source of the workflow, and of a function that it awaits."""
        helper = self._write_helper() if self._rng.random() < 0.4 else ""
        parameters = [f"{each}: {_STATICS[each][0]}" for each in self.statics]
        returned = "tuple[V, V]" if self.is_pair else "V"
        if self.is_streaming:
            returned = f"AsyncIterator[{returned}]"
        if self.takes_stream:
            parameters.insert(0, "parts: AsyncIterator[V]")
        self._lines, self._depth = [], 0
        self._say(f"async def {self.name}({', '.join(['x: V', 'ticket: Ticket', *parameters])}) -> {returned}:")
        self._depth = 1
        self._write_start(set(self.statics))
        self._block()
        self._say_all(self._end())
        return f"{helper}@dyorc.workflow\n" + "\n".join(self._lines) + "\n"

    def _write_helper(self) -> str:
        self._lines, self._depth, self._is_in_helper = [], 0, True
        self._say(f"async def {self.name}_helper(x, ticket):")
        self._depth, budget, pair = 1, self._budget, self.is_pair
        self._budget, self.is_pair, parts, self._num_parts = 4, False, self._parts, ()
        self._write_start(set())
        self._block()
        self._say_all(self._end())
        self._budget, self.is_pair, self._parts = budget, pair, parts
        self._has_helper, self._is_in_helper = True, False
        return "\n".join(self._lines) + "\n\n\n"

    def _write_start(self, given: set[str]) -> None:
        self._say("a = b = c = x")
        self._say("k, k_float, turn = 0, 0.0, 0")
        for each, value in (("by", "1.0"), ("text", "''"), ("number", "0"), ("flag", "False")):
            if each not in given:
                self._say(f"{each} = {value}")
        if self._streams:
            self._say("s = t = parts" if self.takes_stream and not self._is_in_helper else f"s = {self._first_stream()}")
            self._say(f"t = {self._first_stream()}")
        if self._residents:
            self._say("r = q = begin(x)")
        self._say("v = w = await first(x)" if self._rng.random() < 0.1 else "v = w = await x")
        self._say("v = w = await scale(x, by=1.0)")
        self._say("memory, spelled = np.array(v), []")

    def _first_stream(self) -> str:
        return self._rng.choice(["climb(x, length=2)", "tick(x, length=3)", "climb(a)"])

    def _say_all(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._say(line)

    def _say(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    def _end(self) -> list[str]:
        """Returns how the workflow ends: with what it returns, or after a last part."""
        if self._is_in_helper:
            return [f"return {self._some.ref()}"]
        return [f"yield {self._answer()}", "return"] if self.is_streaming else [f"return {self._answer()}"]

    def _answer(self) -> str:
        place = self._rng.choice(["a", "b", "c", "v"])
        return f"({place}, {self._some.any()})" if self.is_pair else place

    def _block(self) -> None:
        """Writes one to four statements."""
        for _ in range(self._rng.choice([1, 2, 2, 3, 4]) if self._depth > 1 else 100):
            if self._budget <= 0:
                break
            self._budget -= 1
            self._statement()
        self._say(f"{self._some.ref()} = {self._some.call()}")

    def _inner(self, head: str) -> None:
        self._say(head)
        self._depth += 1
        self._block()
        self._depth -= 1

    def _statement(self) -> None:
        kinds: list[tuple[int, Callable[[], None]]] = [
            (3, self._write_call), (2, self._write_await), (3, self._write_key), (2, self._write_gather),
            (1, self._write_view), (1, self._write_callee),
        ]  # fmt: skip
        if self.has_effects:
            kinds.append((2, self._write_effect))
        if self._streams:
            kinds += [(7, partial(self._write_lines, self._streams.statement)), (2, self._write_callee)]
        if self._residents:
            kinds.append((8, partial(self._write_lines, self._residents.statement)))
        if self.is_streaming and not self._is_in_helper:
            kinds.append((5, self._write_yield))
        if self._depth < 4:
            kinds += [(4, self._write_if), (3, self._write_match), (2, self._write_loop), (2, self._write_try)]
            kinds += [(1, self._write_end)] if self._depth > 1 else []
            kinds += [(6, self._write_stream_loop)] if self._streams else []
        self._rng.choices([write for _, write in kinds], [weight for weight, _ in kinds])[0]()

    def _write_call(self) -> None:
        self._say(f"{self._some.ref()} = {self._some.call()}")

    def _write_lines(self, statement: Callable[[], list[str]]) -> None:
        self._say_all(statement())

    def _write_yield(self) -> None:
        self._say(f"yield {self._answer()}")

    def _write_stream_loop(self) -> None:
        """Writes a loop over a stream, which may end before the stream does."""
        assert self._streams is not None
        stream = self._nested_stream() or self._streams.stream()
        self._say("turn = 0")
        self._say(f"async for {self._some.ref()} in {stream}:")
        self._depth += 1
        if self._rng.random() < 0.5:
            self._say(self._rng.choice(["if turn == 2:", f"if {self._when()}:", "if flag:"]))
            self._say(f"    {self._rng.choice(['break', 'break', 'continue'])}")
        self._say("turn += 1")
        if self.is_streaming and not self._is_in_helper and self._rng.random() < 0.5:
            self._write_yield()
        self._block()
        self._depth -= 1

    def _nested_stream(self) -> str:
        """Returns a call of a workflow that yields; nothing if there is none."""
        parts = [part for part in self._callable() if part.is_streaming]
        return self._call_of(self._rng.choice(parts)) if parts and self._rng.random() < 0.6 else ""

    def _write_await(self) -> None:
        self._say(f"{self._rng.choice(('v', 'w'))} = await {self._some.call()}")

    def _write_view(self) -> None:
        self._say(
            self._rng.choice(
                [
                    f"a = {self._some.ref()}[::-1]",
                    f"b = {self._some.ref()}[::-1]",
                    "v = v[::-1]",
                    "w = np.negative(v)",
                    "memory[:] = v",
                ]
            )
        )

    def _write_key(self) -> None:
        if self._rng.random() < 0.3:
            self._say(f"flag = {self._some.when()}")
            self._say(f"{self._some.ref()} = tag({self._some.any()}, flag=flag)")
            return
        self._say(f"k = {self._some.choose()}")
        self._say("k_float = k if type(k) is float else 0.5")
        self._say("spelled.append(spell(k))")
        self._say(self._rng.choice(["a = tag(b, text=spell(k))", "c = angle(b, k_float)", "b = signed(b, k_float)"]))

    def _write_gather(self) -> None:
        if self._rng.random() < 0.5:
            self._say(f"v, w = await dyorc.gather({self._some.call()}, {self._some.call()})")
            return
        size = self._rng.choice(["3", "4", "2 + flag", "pick(v, 3)"])
        call = self._rng.choice([f"tag({self._some.any()}, number=i)", f"scale({self._some.any()}, by=float(i))"])
        if self._rng.random() < 0.5:
            self._say(f"for y in await dyorc.gather(*[{call} for i in range({size})]):")
            self._say(f"    {self._some.ref()} = mix({self._some.any()}, y)")
        elif self._rng.random() < 0.5:
            self._say(f"for i, yes in enumerate(await dyorc.when([{call} for i in range({size})], {self._some.predicate()})):")
            self._say(f"    {self._some.ref()} = {call} if yes else {self._some.call()}")
        else:
            self._say(f"for i in await dyorc.choose([{call} for i in range({size})], lambda v: pick(v, 4)):")
            self._say(f"    {self._some.ref()} = {call}")

    def _write_effect(self) -> None:
        self._num_places += 1
        place = self._num_places
        text = f"{self.name[len(self._case) :]}{place}"
        if self._streams and self._rng.random() < 0.5:
            call = self._streams.effect(f"{text}.")
            is_stream = call.startswith("announce") and self._rng.random() < 0.7
            self._say(f"{self._streams.variable()} = {call}" if is_stream else call)
            return
        call = self._rng.choice(
            [f"record({self._some.any()}, ticket, place={place})", f"record({self._some.any()}, ticket)",
             f"pay({self._some.any()}, ticket, text={text!r})"]
        )  # fmt: skip
        self._say(self._rng.choice([call, f"{self._some.ref()} = {call}"]))

    def _write_callee(self) -> None:
        parts = self._callable()
        if self._has_helper and not self._is_in_helper:
            self._say(f"{self._some.ref()} = await {self.name}_helper({self._some.ref()}, ticket)")
        elif parts:
            part = self._rng.choice(parts)
            call = self._call_of(part)
            if part.is_streaming:
                assert self._streams is not None
                self._say(f"{self._streams.variable()} = {call}")
            else:
                self._say(self._rng.choice([f"{self._some.ref()} = {call}", f"v = await {call}"]))
        else:
            self._write_call()

    def _callable(self) -> "list[_Writer]":
        """Returns the workflows that this one may call."""
        return [
            part
            for part in self._parts
            if (self._streams or not (part.is_streaming or part.takes_stream)) and self.has_effects >= part.has_effects
        ]

    def _call_of(self, part: "_Writer") -> str:
        given = {"by": self._some.number(), "text": self._rng.choice(TEXTS), "number": "number", "flag": "flag"}
        statics = "".join([f", {each}={given[each]}" for each in part.statics])
        stream = f", {self._streams.stream()}" if part.takes_stream and self._streams else ""
        return f"{part.name}({self._some.any()}, ticket{stream}{statics})"

    def _when(self) -> str:
        """Returns a decision: mostly on a call without effects, sometimes on a stream or residents."""
        guards = [each.guard for each in (self._streams, self._residents) if each is not None]
        return self._rng.choice(guards)() if guards and self._rng.random() < 0.4 else self._some.when()

    def _write_if(self) -> None:
        self._inner(f"if {self._when()}:")
        if self._rng.random() < 0.6:
            self._inner("else:")

    def _write_match(self) -> None:
        self._write_key()
        tests = [
            "k == 1", "k is True", "isinstance(k, str)", "type(k) is float", "k", "flag", "spell(k) < 'float'", "k == k",
            "isinstance(k, tuple)",
        ]  # fmt: skip
        first, second = self._rng.sample(tests, 2)
        self._inner(f"if {first}:")
        self._inner(f"elif {second}:")
        self._inner("else:")

    def _write_loop(self) -> None:
        kind = self._rng.randrange(3)
        if kind == 0:
            self._say(
                f"size = await dyorc.choose({self._some.looked_at()}, lambda v: pick(v, 4){self._some.likely(['0', '1', '3'])})"
            )
            self._inner("for turn in range(size):")
        elif kind == 1:
            self._say("for turn in range(4):")
            self._depth += 1
            self._say(f"if not {self._when()}:")
            self._say("    break")
            self._block()
            self._depth -= 1
        else:
            self._say("turn = 0")
            self._say(f"while turn < 3 and {self._when()}:")
            self._depth += 1
            self._say("turn += 1")
            self._block()
            self._depth -= 1

    def _write_try(self) -> None:
        self._say("try:")
        self._depth += 1
        self._block()
        for line in self._risk():
            self._say(line)
        self._depth -= 1
        caught = self._rng.choice(_CATCHES)
        self._say(f"except {caught} as error:")
        self._depth += 1
        if caught == "dyorc.ProgramError":
            self._say("a = tag(b, text=error.error_type + error.message)")
        self._block()
        self._depth -= 1
        if self._rng.random() < 0.2:
            self._inner("finally:")

    def _risk(self) -> list[str]:
        """Returns lines that raise for some values: a program's call, a decision, or the workflow itself."""
        rng, some = self._rng, self._some
        risky = f"risky({some.any()}, kind={rng.choice(['ValueError', 'KeyError', 'Odd'])!r})"
        if self._streams and rng.random() < 0.3:
            return [f"async for a in {self._streams.stream()}:", "    pass"]
        return rng.choice(
            [
                [f"v = await {risky}"],
                [f"a = {risky}", "b = await scale(a)"],
                [f"flag = await dyorc.when({some.looked_at()}, lambda v: 1 // pick(v, 3) > 0)"],
                [f"flag = await dyorc.when({risky}, {some.predicate()})"],
                [f"v, w = await dyorc.gather({some.call()}, {risky})"],
                ["if len(v) > 2 and pick(v, 2):", "    raise ValueError(f'{len(v)} are too many')"],
            ]
        )

    def _write_end(self) -> None:
        if self._rng.random() < 0.3:
            self._say(f"if {self._when()}:")
            self._say(f"    raise KeyError({self.name!r})")
        else:
            self._say(f"if {self._when()}:")
            self._say_all([f"    {line}" for line in self._end()])
