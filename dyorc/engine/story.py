"""The story of one request, step by step: why its batches had their sizes, what was guessed, what that saved or cost.

Kept only for requests that ask for it. The steps are plain values, ready for JSON; times are in ms since the request arrived.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

Step: TypeAlias = dict[str, Any]


class Story:
    """The steps so far."""

    __slots__ = ("_started_ns", "steps")

    def __init__(self, now_ns: int) -> None:
        self._started_ns = now_ns
        self.steps: list[Step] = []

    def add(self, now_ns: int, event: str, **facts: Any) -> None:
        """Adds a step."""
        self.steps.append({"at_ms": round((now_ns - self._started_ns) / 1e6, 3), "event": event, **facts})


def as_text(steps: Sequence[Step]) -> str:
    """Renders a story for people, one line per step."""
    return "\n".join(f"{step['at_ms']:9.2f} ms  {_describe(step)}" for step in steps)


def _describe(step: Step) -> str:
    match step["event"]:
        case "followed":
            return f"decision at {step['decision']} is open; goes on under {step['outcomes']}"
        case "dispatched":
            return _describe_dispatch(step)
        case "done":
            return f"{step['program']} is done"
        case "lost":
            return f"the result of {step['program']} was lost with its replica; it is computed again"
        case "recomputed":
            return f"the result of {step['program']} has been computed again"
        case "failed":
            return f"{step['program']} failed: {step['error']}"
        case "part":
            return f"part {step['index']} of the answer is sent"
        case "decided":
            return _describe_decision(step)
        case event:
            return str(event)


def _describe_dispatch(step: Step) -> str:
    num_guesses, size = step["num_guesses"], step["batch_size"]
    guesses = f", {num_guesses} of them guesses" if 0 < num_guesses < size else ""
    text = f"{step['program']} starts in a batch of {size}{guesses}: {step['reason']}"
    if bet := step.get("guess"):
        text += f"; a guess: p = {bet['probability']}, saves {bet['saves_ms']:.1f} ms if right, "
        text += f"costs others {bet['costs_others_ms']:.1f} ms if wrong"
    return text


def _describe_decision(step: Step) -> str:
    text = f"decision at {step['decision']}: {step['outcome']}"
    for guess in step["guesses"]:
        text += f"; the guess {guess['outcome']} was {'right' if guess['is_right'] else 'wrong'}"
        if guess["gain_ms"]:
            text += f", {'saved' if guess['gain_ms'] > 0 else 'cost others'} {abs(guess['gain_ms']):.1f} ms"
    return text
