"""Writes random expressions and statements with streams and residents."""

import random

from tests.random_workflows.expressions import REFS, TEXTS, Expressions

STREAMS, RESIDENTS = ("s", "t"), ("r", "q")


class StreamExpressions:
    """Writes over a workflow's variables that hold streams: `s` and `t`."""

    def __init__(self, rng: random.Random, some: Expressions) -> None:
        self._rng = rng
        self._some = some

    def variable(self) -> str:
        return self._rng.choice(STREAMS)

    def length(self) -> str:
        return self._rng.choice(["0", "1", "2", "3", "3", "5", "turn", "number % 4"])

    def stream(self) -> str:
        """Returns a call that gives a stream, or a variable that holds one."""
        rng, x = self._rng, self._some.any()
        match rng.randrange(9):
            case 0 | 1:
                return f"climb({x}, length={self.length()})"
            case 2 | 3:
                return f"tick({x}, length={self.length()}, text={rng.choice(TEXTS)})"
            case 4:
                return f"along({self.variable()}, length={self.length()})"
            case 5:
                return f"along({self.variable()})"
            case 6:
                return f"weave({self.variable()}, {self.variable()})"
            case _:
                return self.variable()

    def read_whole(self) -> str:
        """Returns a call that takes a stream whole."""
        program = self._rng.choice(["fold", "fold", "leading"])
        return f"{program}({self.stream()}, {self._some.any()})"

    def effect(self, place: str) -> str:
        """Returns a call with effects that yields, or takes a stream."""
        if self._rng.random() < 0.5:
            return f"jot({self.variable()}, ticket, text={place!r})"
        return f"announce({self._some.any()}, ticket, length={self._rng.choice(['1', '2', '3'])}, text={place!r})"

    def statement(self) -> list[str]:
        """Returns a statement that reads streams, or makes one, without blocks of its own."""
        rng, some, v = self._rng, self._some, self._rng.choice(("v", "w"))
        return rng.choice(
            [
                [f"{self.variable()} = {self.stream()}"],
                [f"{self.variable()} = {self.stream()}"],
                [f"{some.ref()} = {self.read_whole()}"],
                [f"{v} = await {self.read_whole()}"],
                [f"{v} = await anext(aiter({self.stream()}), {v})", f"{v} = {v} if isinstance({v}, np.ndarray) else await {v}"],
                [f"for y in await dyorc.collect({self.stream()}):", f"    {some.ref()} = mix({some.any()}, y)"],
                [f"[*_, a, b] = [a, b, *[y async for y in {self.stream()}]]"],
                [f"async for {some.ref()} in {self.stream()}:", f"    {some.ref()} = {some.call()}"],
                [f"one, other = aiter({self.variable()}), aiter({self.variable()})",
                 "for _ in range(2):",
                 f"    a, b = await anext(one, a), await anext(other, {some.ref()})"],
            ]
        )  # fmt: skip

    def guard(self) -> str:
        """Returns a decision on a stream."""
        return f"await dyorc.when({self.read_whole()}, {self._some.predicate()}{self._some.likely(['True', 'False'])})"


class ResidentExpressions:
    """Writes over a workflow's variables that hold residents: `r` and `q`."""

    def __init__(self, rng: random.Random, some: Expressions) -> None:
        self._rng = rng
        self._some = some

    def variable(self) -> str:
        return self._rng.choice(RESIDENTS)

    def looked_at(self) -> str:
        """Returns a call whose result depends on residents."""
        if self._rng.random() < 0.4:
            return f"meet({self._some.any()}, {self.variable()}, {self.variable()})"
        return f"{self._rng.choice(['extend', 'extend', 'overwrite'])}({self._some.any()}, {self.variable()})[0]"

    def statement(self) -> list[str]:
        """Returns a statement that goes on with residents, or begins one."""
        rng, some = self._rng, self._some
        program = rng.choice(["extend", "extend", "extend", "overwrite", "overwrite", "strain"])
        number = "" if program == "strain" else f", number={rng.choice(['0', '1', 'turn'])}"
        step = f"{program}({some.any()}, {self.variable()}{number})"
        return rng.choice(
            [
                [f"{rng.choice(REFS)}, {self.variable()} = {step}"],
                [f"{rng.choice(REFS)}, {self.variable()} = {step}"],
                [f"{rng.choice(REFS)}, {self.variable()} = {step}"],
                [f"{self.variable()} = begin({some.any()})"],
                [f"{rng.choice(RESIDENTS)} = {rng.choice(RESIDENTS)}"],
                [f"{some.ref()} = {self.looked_at()}"],
                [f"a, r = {step}", f"b, q = {step}"],
                [f"v = await {step}[0]"],
                ["for turn in range(3):", f"    {rng.choice(REFS)}, {rng.choice(RESIDENTS)} = {step}"],
            ]
        )

    def guard(self) -> str:
        """Returns a decision on residents."""
        return f"await dyorc.when({self.looked_at()}, {self._some.predicate()}{self._some.likely(['True', 'False'])})"
