"""Passes questions between cells and gathers the answers. Only the standard library."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from dyorc.supervisor.cell_process import CellProcess
from dyorc.system.json_lines import Message

_ANSWER_TIMEOUT_S = 1.0


@dataclass
class _Question:
    asker: CellProcess
    id: int
    waiting: set[int]
    values: dict[int, Any] = field(default_factory=dict[int, Any])
    errors: dict[int, str] = field(default_factory=dict[int, str])


class CellHub:
    """Passes questions between cells. Used on the event loop.

    Attributes:
        remembered: What cells keep for the others, the ones that start later included, by name; opaque here.

    Args:
        cells: The living cells, by number; the mapping's owner keeps it up to date.
        num_cells: How many cells there should be.
    """

    def __init__(self, cells: Mapping[int, CellProcess], num_cells: int) -> None:
        self.remembered: dict[str, Any] = {}
        self._cells = cells
        self._num_cells = num_cells
        self._counted: dict[int, Any] = {}
        self._ids = count()
        self._open: dict[int, _Question] = {}

    def handle(self, cell: CellProcess, message: Message) -> None:
        """Handles a cell's message of a kind that concerns the hub."""
        match message["kind"]:
            case "ask":
                self._ask(cell, message)
            case "answer":
                self._take_answer(cell, message)
            case "counted":
                self._counted[cell.number] = message["value"]
            case "remember":
                self._remember(cell, message)
            case _:
                raise ValueError(f"a cell sent a message of the unknown kind {message['kind']!r}")

    def _ask(self, cell: CellProcess, message: Message) -> None:
        others = [other for other in self._cells.values() if other is not cell and other.states is not None]
        number = next(self._ids)
        self._open[number] = _Question(cell, message["id"], {other.number for other in others})
        for other in others:
            other.send("asked", id=number, what=message["what"], value=message["value"])
        if others:
            asyncio.get_running_loop().call_later(_ANSWER_TIMEOUT_S, self._close, number)
        else:
            self._close(number)

    def _take_answer(self, cell: CellProcess, message: Message) -> None:
        question = self._open.get(message["id"])
        if question is None:
            return  # too late
        if message.get("error") is not None:
            question.errors[cell.number] = message["error"]
        else:
            question.values[cell.number] = message["value"]
        question.waiting.discard(cell.number)
        if not question.waiting:
            self._close(message["id"])

    def _remember(self, cell: CellProcess, message: Message) -> None:
        """Passes a value on at once: the cell that sent it may end, and a cell that is starting already has an older one."""
        topic, value = message["what"], message["value"]
        self.remembered[topic] = value
        for other in self._cells.values():
            if other is not cell:
                other.send("remembered", what=topic, value=value)

    def counted_by(self, number: int) -> Any:
        """Returns the counts that a cell reported last; None if it reported none."""
        return self._counted.get(number)

    def tell_all(self, kind: str, **content: Any) -> None:
        """Sends a message to all cells."""
        for cell in self._cells.values():
            cell.send(kind, **content)

    def drop_questions(self, cell: CellProcess) -> None:
        """Stops waiting for a cell that has ended."""
        for number, question in list(self._open.items()):
            question.waiting.discard(cell.number)
            if not question.waiting:
                self._close(number)

    def _close(self, number: int) -> None:
        question = self._open.pop(number, None)
        if question is None:
            return
        known = question.values.keys() | question.errors.keys() | {question.asker.number}
        missing = [cell for cell in range(self._num_cells) if cell not in known]
        counted = [(cell, self._counted[cell]) for cell in missing if cell in self._counted]
        # JSON allows only strings as keys.
        question.asker.send(
            "answers", id=question.id, values=list(question.values.items()), errors=list(question.errors.items()),
            missing=missing, counted=counted,
        )  # fmt: skip
