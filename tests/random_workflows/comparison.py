"""What differs between two outcomes of a case."""

from tests.random_workflows.cases import Outcome


def differences(expected: Outcome, actual: Outcome) -> list[str]:
    """Returns a line for each answer that differs, and for each effect that happened too often or too rarely."""
    lines: list[str] = []
    for ticket, answer in expected.answers.items():
        other = actual.answers.get(ticket)
        if other != answer:
            lines.append(f"request {ticket}: expected {answer}, got {other}")
    for line, number in sorted((expected.effects - actual.effects).items()):
        lines.append(f"effect {line!r} is missing {number} times")
    for line, number in sorted((actual.effects - expected.effects).items()):
        lines.append(f"effect {line!r} happened {number} times too often")
    return lines
