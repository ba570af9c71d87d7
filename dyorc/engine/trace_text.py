"""A request's story as text for people: a line for each step, and one line for all turns of a loop."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from dyorc.engine.request_trace import Step, TraceNote

MAX_ALIKE = 8
"""More calls of one program, or decisions at one place, are one line."""


def as_text(steps: Sequence[Step], max_alike: int = MAX_ALIKE) -> str:
    """Renders a story for people, one line per step.

    Args:
        max_alike: If a program was called more often than this, its calls are one line, where the first begins; so are decisions
            at the same place. Calls that failed have lines of their own.
    """
    loops = _Loops(steps, max_alike)
    lines: list[str] = []
    for step in steps:
        text = loops.describe(step)
        if text:
            lines.append(f"{step['at_ms']:9.2f} ms  {text}")
    return "\n".join(lines)


class _Loops:
    """What a story repeats."""

    def __init__(self, steps: Sequence[Step], max_alike: int) -> None:
        numbers = Counter(name for step in steps if (name := _repeated(step)))
        self._numbers = {name: number for name, number in numbers.items() if number > max_alike}
        self._steps: defaultdict[str, list[Step]] = defaultdict(list)
        for step in steps:
            self._steps[_name(step)].append(step)
        self._described: set[str] = set()

    def describe(self, step: Step) -> str:
        """Returns the text of a step; of one that repeats others, nothing after the first."""
        name = _name(step)
        if name not in self._numbers or step["event"] not in ("dispatched", "done", "followed", "decided"):
            return _describe(step)
        if name in self._described:
            return ""
        self._described.add(name)
        return self._describe_decisions(name) if "decision" in step else self._describe_calls(name)

    def _describe_calls(self, program: str) -> str:
        own = self._steps[program]
        sent = {step["call"]: step for step in own if step["event"] == "dispatched"}
        took_ms = [
            step["at_ms"] - sent[step["call"]]["at_ms"] for step in own if step["event"] == "done" and step["call"] in sent
        ]
        sizes = [step["batch_size"] for step in sent.values()]
        text = f"{program} x {self._numbers[program]}"
        if took_ms:
            text += f", {sum(took_ms) / len(took_ms):.1f} ms each"
        text += f", in batches of {min(sizes)}" + (f" to {max(sizes)}" if max(sizes) > min(sizes) else "")
        num_guesses = sum("guess" in step for step in sent.values())
        return text + (f", {num_guesses} as guesses" if num_guesses else "")

    def _describe_decisions(self, site: str) -> str:
        taken = [step for step in self._steps[site] if step["event"] == "decided"]
        outcomes = Counter(step["outcome"] for step in taken)
        text = f"decision at {site} x {len(taken)}: " + ", ".join(f"{outcome} x {num}" for outcome, num in outcomes.items())
        guesses = [guess for step in taken for guess in step["guesses"]]
        num_right = sum(guess["is_right"] for guess in guesses)
        return text + (f"; {num_right} guesses were right, {len(guesses) - num_right} wrong" if guesses else "")


def _name(step: Step) -> str:
    """Returns the program that a step is about, or the place of a decision."""
    return step.get("decision") or step.get("program", "")


def _repeated(step: Step) -> str:
    """Returns what a step does once more: the program of a call that is sent, or the place of a decision that is taken."""
    match step["event"]:
        case "dispatched":
            return step["program"]
        case "decided":
            return step["decision"]
        case _:
            return ""


def _describe(step: Step) -> str:
    match step["event"]:
        case "followed":
            return f"decision at {step['decision']} is open; goes on under {step['outcomes']}"
        case "dispatched":
            return _describe_dispatch(step)
        case "done":
            return f"{step['program']} is done"
        case "failed":
            return f"{step['program']} failed: {step['error']}"
        case "part":
            return f"part {step['index']} of the answer is sent"
        case "decided":
            return _describe_decision(step)
        case event:
            return TraceNote(0, str(event), step.get("program", ""), step.get("why", ""), step.get("by", "")).text()


def _describe_dispatch(step: Step) -> str:
    num_guesses, size = step["num_guesses"], step["batch_size"]
    guesses = f", {num_guesses} of them guesses" if 0 < num_guesses < size else ""
    text = f"{step['program']} starts in a batch of {size}{guesses}: {step['reason']}"
    if bet := step.get("guess"):
        text += f"; a guess: p = {bet['probability']}, saves {bet['saves_ms']:.1f} ms if right, "
        text += f"costs others {bet['costs_others_ms']:.1f} ms if wrong"
        text += f" and {bet['slows_others_ms']:.1f} ms in any case"
    return text


def _describe_decision(step: Step) -> str:
    text = f"decision at {step['decision']}: {step['outcome']}"
    for guess in step["guesses"]:
        text += f"; the guess {guess['outcome']} was {'right' if guess['is_right'] else 'wrong'}"
        if guess["gain_ms"]:
            text += f", {'saved' if guess['gain_ms'] > 0 else 'cost others'} {abs(guess['gain_ms']):.1f} ms"
    return text
