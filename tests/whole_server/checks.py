"""What must hold at the end of a run."""

from collections import Counter
from collections.abc import Sequence

from dyorc.cluster.gateway_server import GatewayServer
from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.gateway.service import InferenceService
from dyorc.leader_election.leadership import Leadership
from dyorc.orchestrator.orchestrator import Orchestrator
from tests.whole_server.clients import JOB_TIMEOUT_S, TIMEOUT_S, Exchange, Ledger
from tests.whole_server.disk import job_states
from tests.whole_server.explanations import GIVEN_UP, Fault, causes_between, is_explained, may_lose_effects
from tests.whole_server.observed import Observed
from tests.whole_server.outside import EFFECTS
from tests.whole_server.served import PLAIN, SECOND_PLAIN, WITH_EFFECTS
from tests.whole_server.servers import Troupe
from tests.whole_server.virtual_redis import VirtualRedis
from tests.whole_server.world import VirtualProcess

_ANSWERS = PLAIN | SECOND_PLAIN
_FINAL = ("succeeded", "failed", "cancelled")
_MAY_EXIT_WITH = ("LeadLostError", "no server starts without its store")
"""What a job may fail with whose servers were killed `jobs.max_attempts` times."""
_REQUEST_S = TIMEOUT_S + 1.0
"""A request ends when its client's time is over, at the latest; a step of the client's loop may come late."""
_JOB_S = TIMEOUT_S + JOB_TIMEOUT_S + 1.0
_CALM_S = 2 * 1.0 + 1.0 + 2.0
"""What was sent after the faults: a job waits for the store to be looked at (1 s) when it is submitted, and again if its client
has lost its gateway; a connection that was cut is found out by a second try (1 s); the work itself takes under 2 s."""


def faults_of(
    troupe: Troupe, ledger: Ledger, clients: list[VirtualProcess], observed: Observed, redis: VirtualRedis | None,
    faults: Sequence[Fault],
) -> list[str]:  # fmt: skip
    """Returns what is wrong, a sentence each.

    Args:
        redis: The store; None if that is SQLite.
        faults: What was done to the servers.
    """
    wrong: list[str] = []
    for exchange in ledger.exchanges:
        wrong += _faults_of_exchange(exchange, faults)
        wrong += _faults_of_time(exchange)
    wrong += _faults_of_effects(ledger, faults)
    for at_s, name in observed.kept_leads:
        # Its last step may have failed, or came too late.
        if not causes_between(at_s, at_s, faults, ("disk", "stop", "kill redis")):
            wrong.append(f"{name} ended in order and kept its lead")
    wrong += [f"{client.name} failed: {client.exit}" for client in clients if client.exit not in ("ended", "")]
    wrong += [f"a server ended by itself: {text}" for text in troupe.exits if not any(known in text for known in _MAY_EXIT_WITH)]
    wrong += [f"job {name} has ended {number} times" for name, number in observed.job_ends.items() if number > 1]
    return wrong + observed.wrong + _faults_of_jobs(troupe, ledger, redis) + _faults_at_rest(observed, troupe.groups)


def _faults_of_jobs(troupe: Troupe, ledger: Ledger, redis: VirtualRedis | None) -> list[str]:
    """Every job that was accepted has ended, with its client's knowledge or without."""
    states = job_states(troupe.folder) if redis is None else redis.job_states()
    wrong = [f"job {name} is {state} at rest" for name, state in states.items() if state not in _FINAL]
    accepted = [exchange for exchange in ledger.exchanges if exchange.job_id]
    num_unknown = len(states.keys() - {exchange.job_id for exchange in accepted})
    num_expected = ledger.num_other_jobs + sum(exchange.is_job and not exchange.job_id for exchange in ledger.exchanges)
    if num_unknown > num_expected:
        wrong.append(f"the store has {num_unknown} jobs of other clients, or of nobody, expected at most {num_expected}")
    return wrong + [f"job {exchange.job_id} was accepted and is gone" for exchange in accepted if exchange.job_id not in states]


def _faults_at_rest(observed: Observed, groups: Sequence[str]) -> list[str]:
    """Nothing is left of all the requests."""
    counts: dict[str, int] = {}
    for service in observed.living(InferenceService):
        counts["requests admitted"] = counts.get("requests admitted", 0) + service.admission.num_requests
    for backend in observed.living(RemoteBackend):
        counts["requests pending at a gateway"] = counts.get("requests pending at a gateway", 0) + len(backend._pending)
        counts["tensors of a gateway"] = counts.get("tensors of a gateway", 0) + backend.tensors.exchange.num_tensors
    for orchestrator in observed.living(Orchestrator):
        counts["requests of an orchestrator"] = counts.get("requests of an orchestrator", 0) + orchestrator.num_requests
        counts["tensors of an orchestrator"] = (
            counts.get("tensors of an orchestrator", 0) + orchestrator.tensors.exchange.num_tensors
        )
    wrong = [f"{number} {name} at rest" for name, number in counts.items() if number]
    now_s = observed.world.now_ns / 1e9
    for group in groups:
        num_serving = sum(server._lead.group == group for server in observed.living(GatewayServer))
        leaderships = [leadership for leadership in observed.living(Leadership) if leadership.group == group]
        num_sure = sum(leadership._sure_until_s > now_s for leadership in leaderships)
        if (num_serving, num_sure) != (1, 1):
            wrong.append(f"{num_serving} orchestrators of group {group!r} serve at rest and {num_sure} lead, expected one")
    return wrong


def _name_of(exchange: Exchange) -> str:
    return f"{'job' if exchange.is_job else 'request'} {exchange.value} of {exchange.model}"


def _faults_of_time(exchange: Exchange) -> list[str]:
    """All ends within a time that can be explained."""
    limit_s = _CALM_S if exchange.is_calm else _JOB_S if exchange.is_job else _REQUEST_S
    took_s = exchange.ended_s - exchange.sent_s
    return [f"{_name_of(exchange)} took {took_s:.3f} s, expected at most {limit_s} s"] if took_s > limit_s else []


def _faults_of_exchange(exchange: Exchange, faults: Sequence[Fault]) -> list[str]:
    name = _name_of(exchange)
    if exchange.num_endings != 1:
        return [f"{name} has ended {exchange.num_endings} times, expected once"]
    if exchange.outcome == "answer":
        expected = _ANSWERS[exchange.model](exchange.value)
        return [] if exchange.answer == expected else [f"{name} was answered {exchange.answer}, expected {expected}"]
    if exchange.is_calm:
        return [f"{name} failed after the faults: {exchange.outcome}: {exchange.text}"]
    if exchange.is_job and GIVEN_UP in exchange.text:
        return []
    is_explained_by_kind = exchange.outcome != "effect_lost" or exchange.model in WITH_EFFECTS
    if is_explained_by_kind and is_explained(exchange.outcome, exchange.sent_s, exchange.ended_s, faults, is_job=exchange.is_job):
        return []
    return [f"{name} failed with {exchange.outcome}, which no fault explains: {exchange.text}"]


def _faults_of_effects(ledger: Ledger, faults: Sequence[Fault]) -> list[str]:
    """No effect happens twice. None is missing whose request was answered, except one that comes after the answer."""
    numbers = Counter(EFFECTS)
    wrong = [f"the effect of {value} happened {number} times" for value, number in numbers.items() if number > 1]
    senders = {exchange.value: exchange for exchange in ledger.exchanges if exchange.model in WITH_EFFECTS}
    wrong += [f"an effect of {value}, which nobody sent" for value in numbers if value not in senders]
    answered = [value for value, exchange in senders.items() if exchange.outcome == "answer" and not _may_lack(exchange, faults)]
    return wrong + [f"{value} was answered, and its effect has not happened" for value in answered if not numbers[value]]


def _may_lack(exchange: Exchange, faults: Sequence[Fault]) -> bool:
    """Returns whether an effect may be missing: of an answered request, not of a job, which waits for its effects."""
    may_come_later = exchange.model == "left" and not exchange.is_job
    return may_come_later and may_lose_effects(exchange.sent_s, exchange.ended_s, faults)
