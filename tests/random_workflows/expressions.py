"""Writes random expressions: calls of programs without effects, and decisions."""

import random

from tests.random_workflows.plain import KEYS

REFS, VALUES = ("a", "b", "c"), ("v", "w", "memory")
_NUMBERS = ("0.0", "-0.0", "1.0", "-1.0", "2.5", "float('nan')", "-float('nan')", "float('inf')", "k_float", "by", "2")
TEXTS = ("'1'", "'red'", "''", "spell(k)", "str(k)", "text", "type(k).__name__")


class Expressions:
    """Writes expressions over a workflow's variables."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def ref(self) -> str:
        return self._rng.choice(REFS)

    def any(self) -> str:
        return self._rng.choice((*REFS, *VALUES, "x"))

    def number(self) -> str:
        return self._rng.choice(_NUMBERS)

    def call(self) -> str:
        """Returns a call of a program without effects."""
        rng, x = self._rng, self.any()
        match rng.randrange(12):
            case 0:
                return f"scale({x}, by={self.number()})"
            case 1:
                return f"shift({x}, by={self.number()})"
            case 2:
                return f"angle({x}, {self.number()})"
            case 3:
                return f"signed({x}, {self.number()})"
            case 4 | 5:
                return f"tag({x}, text={rng.choice(TEXTS)}, number={rng.choice(['0', '1', 'number', 'turn'])}, flag=flag)"
            case 6:
                return f"mix({x}, {self.any()})"
            case 7 | 8:
                return f"wait({x})"
            case 9:
                return f"real(whole({x}))"
            case 10:
                return f"halve({x})[{rng.choice(['low', 'high'])!r}]"
            case _:
                return rng.choice([f"alone({x})", f"padded({x})", f"tag({x}, text={rng.choice(TEXTS)})"])

    def looked_at(self) -> str:
        """Returns a Ref that a decision looks at; mostly one that is not there yet."""
        return self._rng.choice([self.call(), self.call(), f"wait({self.any()})", f"first({self.any()})", self.ref(), "x"])

    def predicate(self) -> str:
        """Returns a function of a value, which may read variables that the workflow changes later."""
        return self._rng.choice(
            ["lambda v: bool(pick(v, 2))", "lambda v: bool(pick(v, 3))", "lambda v: bool(np.ravel(v)[0] > 1)",
             "lambda v: bool(np.signbit(np.ravel(v)[0]))", "lambda v: bool(pick(v, 2 + turn))",
             "lambda v: bool(np.ravel(v)[0] > turn + k_float)", "lambda v: bool(pick(v, 2)) is not flag",
             "lambda v: bool(pick(v, 2 + len(spelled)))"]
        )  # fmt: skip

    def likely(self, values: list[str]) -> str:
        return f", likely={self._rng.choice(values)}" if self._rng.random() < 0.5 else ""

    def when(self) -> str:
        return f"await dyorc.when({self.looked_at()}, {self.predicate()}{self.likely(['True', 'False'])})"

    def choose(self) -> str:
        rng = self._rng
        at = rng.choice([rng.sample(range(len(KEYS)), rng.randrange(2, 6)), self._equal_keys()])
        table = f"({', '.join([f'KEYS[{each}]' for each in at])},)"
        index = f"[pick(v, {len(at)})]" if rng.random() < 0.7 else f"[(pick(v, 100) + turn + len(spelled)) % {len(at)}]"
        key = f"fresh({table}{index})" if rng.random() < 0.5 else f"{table}{index}"
        return f"await dyorc.choose({self.looked_at()}, lambda v: {key}{self.likely([f'KEYS[{each}]' for each in at])})"

    def _equal_keys(self) -> list[int]:
        """Returns the places of keys that are equal to each other, or all NaN."""
        chosen = self._rng.choice(KEYS[:11])
        return [at for at, key in enumerate(KEYS) if key == chosen or (chosen == 1 and key in ("1", (1, "1")))]
