"""Makes a case small whose outcome differs: takes away requests and statements as long as it still does."""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from tests.random_workflows.cases import Case

FindDiffering = Callable[[Sequence[Case]], int | None]
"""Returns which case, the first of several, means something and comes to another outcome; None if none does."""


def shrink(case: Case, find_differing: FindDiffering, *, max_rounds: int = 200, num_at_once: int = 1) -> Case:
    """Returns a smaller case that differs as well.

    Args:
        max_rounds: How many times to look for a smaller one.
        num_at_once: Candidates that are handed over together: a server can run many.
    """
    left = max_rounds
    while left:
        candidates = iter(_smaller(case))
        while left and (some := list(islice(candidates, num_at_once))):
            left -= 1
            at = find_differing(some)
            if at is not None:
                case = some[at]
                break
        else:
            break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Yields cases without some of the requests, then without a statement, or with one in the place of its block; the
    smallest first."""
    size = len(case.requests)
    for kept in (case.requests[: size // 2], case.requests[size // 2 :]):
        if size > 1:
            yield replace(case, requests=kept)
    if size <= 3:
        for at in range(size if size > 1 else 0):
            yield replace(case, requests=case.requests[:at] + case.requests[at + 1 :])
    sources = {ast.unparse(tree) for tree in _smaller_trees(ast.parse(case.source))}
    for source in sorted(sources, key=lambda source: (len(source), source)):
        if source != case.source:
            yield replace(case, source=source)


def _smaller_trees(tree: ast.Module) -> Iterator[ast.Module]:
    for number, (_, name, at) in enumerate(_statements(tree)):
        for variant in range(4):
            smaller = copy.deepcopy(tree)
            parent, _, _ = _statements(smaller)[number]
            body: list[ast.stmt] = getattr(parent, name)
            instead = _inside(body[at], variant)
            if instead is None:
                break
            body[at : at + 1] = instead
            if not body and name == "body":
                body.append(ast.Pass())
            yield smaller


def _statements(tree: ast.Module) -> list[tuple[ast.AST, str, int]]:
    """Returns where each statement is, imports aside: its parent, the parent's list, and its place in there."""
    return [
        (parent, name, at)
        for parent in ast.walk(tree)
        for name in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(parent, name, None), list)
        for at, statement in enumerate(block)
        if not isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass)
    ]


def _inside(statement: ast.stmt, variant: int) -> list[ast.stmt] | None:
    """Returns what may stand in a statement's place: nothing, or one of its blocks; None if there are no more."""
    handlers = [each.body for each in getattr(statement, "handlers", ())]
    blocks = [[], *[getattr(statement, name, None) for name in ("body", "orelse", "finalbody")], *handlers]
    if isinstance(statement, ast.AsyncFunctionDef):
        return [] if variant == 0 else None
    usable = [block for at, block in enumerate(blocks) if at == 0 or block]
    return usable[variant] if variant < len(usable) else None
