"""What must hold at the end of a run."""

from collections import Counter

from tests.whole_server.clients import Exchange, Ledger
from tests.whole_server.servers import Troupe
from tests.whole_server.served import EFFECTS, PLAIN
from tests.whole_server.world import VirtualProcess

_MAY_FAIL_WITH = {"transport", "not_ready", "overloaded", "capacity", "deadline", "replica_lost", "tensor_lost"}
"""Errors of requests while servers come and go."""
_JOB_MAY_FAIL_WITH = _MAY_FAIL_WITH | {"store"}


def faults_of(troupe: Troupe, ledger: Ledger, clients: list[VirtualProcess]) -> list[str]:
    """Returns what is wrong, a sentence each."""
    wrong: list[str] = []
    for exchange in ledger.exchanges:
        wrong += _faults_of_exchange(exchange)
    wrong += _faults_of_effects(ledger)
    wrong += [f"{client.name} failed: {client.exit}" for client in clients if client.exit not in ("ended", "")]
    wrong += [f"a server ended by itself: {text}" for text in troupe.exits if "LeadLostError" not in text]
    return wrong


def _faults_of_exchange(exchange: Exchange) -> list[str]:
    kind = "job" if exchange.is_job else "request"
    name = f"{kind} {exchange.value} of {exchange.model}"
    if exchange.num_endings != 1:
        return [f"{name} has ended {exchange.num_endings} times, expected once"]
    if exchange.outcome == "answer":
        expected = PLAIN[exchange.model](exchange.value)
        return [] if exchange.answer == expected else [f"{name} was answered {exchange.answer}, expected {expected}"]
    if exchange.is_calm:
        return [f"{name} failed after the faults: {exchange.outcome}: {exchange.text}"]
    allowed = _JOB_MAY_FAIL_WITH if exchange.is_job else _MAY_FAIL_WITH
    if exchange.outcome in allowed or (exchange.outcome == "effect_lost" and exchange.model == "noted"):
        return []
    return [f"{name} failed with {exchange.outcome}: {exchange.text}"]


def _faults_of_effects(ledger: Ledger) -> list[str]:
    numbers = Counter(EFFECTS)
    wrong = [f"the effect of {value} happened {number} times" for value, number in numbers.items() if number > 1]
    noted = {exchange.value: exchange for exchange in ledger.exchanges if exchange.model == "noted"}
    wrong += [f"an effect of {value}, which nobody sent" for value in numbers if value not in noted]
    answered = [value for value, exchange in noted.items() if exchange.outcome == "answer"]
    return wrong + [f"{value} was answered, and its effect has not happened" for value in answered if not numbers[value]]
