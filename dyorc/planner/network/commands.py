"""Reading commands: a line as words, and errors that say which line, what was expected and what came."""

import shlex
from collections.abc import Iterator, Sequence

from dyorc.errors import PlanError
from dyorc.planner.network.rules import PolicyRoute


def commands_in(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the words of each line that is not empty and no comment, with its number."""
    for number, line in enumerate(text.splitlines(), 1):
        words = shlex.split(line, comments=True)
        if words:
            yield number, words


def wrong(number: int, expected: str, words: Sequence[str]) -> PlanError:
    """Returns the error of a line."""
    return PlanError(f"line {number}: expected {expected}, found {shlex.join(words)!r}")


def options(number: int, words: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Reads names and values in turns: `rate 5bit ceil 5bit`.

    Raises:
        PlanError: There are other names, or too few.
    """
    values = dict(zip(words[::2], words[1::2], strict=False))
    if len(words) % 2 or set(values) != set(names):
        raise wrong(number, " ... ".join(names) + " ...", words)
    return values


def bits(number: int, word: str) -> int:
    """Reads a rate: `5bit`.

    Raises:
        PlanError: It is none.
    """
    if not word.endswith("bit") or not word[:-3].isdigit():
        raise wrong(number, "bits a second, such as 5bit", [word])
    return int(word[:-3])


def route_lines(routes: Sequence[PolicyRoute]) -> Iterator[str]:
    """Policy routing: each receiving machine has its own table."""
    for route in routes:
        if len(route.ways) == 1:
            ways = f"dev {route.ways[0][0]}"
        else:
            ways = " ".join(f"nexthop dev {interface} weight {weight}" for interface, weight in route.ways)
        yield f"ip route replace {route.address}/32 table {route.table} {ways}"
        yield f"ip rule add to {route.address}/32 table {route.table} priority {1000 + route.table}"


def route_in(number: int, words: Sequence[str]) -> PolicyRoute | None:
    """Reads what `route_lines` wrote; None for a rule, which repeats what its route says.

    Raises:
        PlanError: It is something else.
    """
    match words:
        case ["ip", "rule", "add", "to", _, "table", table, "priority", priority] if int(priority) == 1000 + int(table):
            return None
        case ["ip", "route", "replace", address, "table", table, "dev", interface]:
            ways = ((interface, 1),)
        case ["ip", "route", "replace", address, "table", table, *rest] if rest and len(rest) % 5 == 0:
            parts = [rest[start : start + 5] for start in range(0, len(rest), 5)]
            if any((part[0], part[1], part[3]) != ("nexthop", "dev", "weight") for part in parts):
                raise wrong(number, "nexthop dev NAME weight NUMBER", rest)
            ways = tuple((part[2], int(part[4])) for part in parts)
        case _:
            raise wrong(number, "ip route replace or ip rule add", words)
    return PolicyRoute(address=address.removesuffix("/32"), table=int(table), ways=ways)
