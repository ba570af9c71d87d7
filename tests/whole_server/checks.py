"""What must hold at the end of a run."""

from collections import Counter

from dyorc.cluster.gateway_server import GatewayServer
from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.gateway.service import InferenceService
from dyorc.leader_election.leadership import Leadership
from dyorc.orchestrator.orchestrator import Orchestrator
from tests.whole_server.clients import Exchange, Ledger
from tests.whole_server.disk import job_states
from tests.whole_server.observed import Observed
from tests.whole_server.outside import EFFECTS
from tests.whole_server.served import PLAIN
from tests.whole_server.servers import Troupe
from tests.whole_server.virtual_redis import VirtualRedis
from tests.whole_server.world import VirtualProcess

_FINAL = ("succeeded", "failed", "cancelled")
_MAY_EXIT_WITH = ("LeadLostError", "ConfigurationError: gateways and orchestrators find each other by the store")
_MAY_FAIL_WITH = {"transport", "not_ready", "overloaded", "capacity", "replica_lost", "tensor_lost"}
"""Errors of requests while servers come and go."""
_GIVEN_UP = "attempts: each time, the server that ran it died"
"""What a job may fail with whose servers were killed `jobs.max_attempts` times."""
_JOB_MAY_FAIL_WITH = _MAY_FAIL_WITH | {"store"}


def faults_of(
    troupe: Troupe, ledger: Ledger, clients: list[VirtualProcess], observed: Observed, redis: VirtualRedis | None
) -> list[str]:
    """Returns what is wrong, a sentence each."""
    wrong: list[str] = []
    for exchange in ledger.exchanges:
        wrong += _faults_of_exchange(exchange)
    wrong += _faults_of_effects(ledger)
    wrong += [f"{client.name} failed: {client.exit}" for client in clients if client.exit not in ("ended", "")]
    wrong += [f"a server ended by itself: {text}" for text in troupe.exits if not any(known in text for known in _MAY_EXIT_WITH)]
    wrong += [f"job {name} has ended {number} times" for name, number in observed.job_ends.items() if number > 1]
    return wrong + observed.wrong + _faults_of_jobs(troupe, ledger, redis) + _faults_at_rest(observed)


def _faults_of_jobs(troupe: Troupe, ledger: Ledger, redis: VirtualRedis | None) -> list[str]:
    """Every job that was accepted has ended, with its client's knowledge or without."""
    states = job_states(troupe.folder) if redis is None else redis.job_states()
    wrong = [f"job {name} is {state} at rest" for name, state in states.items() if state not in _FINAL]
    num_submitted = ledger.num_other_jobs + sum(exchange.is_job for exchange in ledger.exchanges)
    if len(states) > num_submitted:
        wrong.append(f"the store has {len(states)} jobs, {num_submitted} were submitted")
    accepted = [exchange for exchange in ledger.exchanges if exchange.job_id]
    return wrong + [f"job {exchange.job_id} was accepted and is gone" for exchange in accepted if exchange.job_id not in states]


def _faults_at_rest(observed: Observed) -> list[str]:
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
    num_serving = len(observed.living(GatewayServer))
    num_sure = sum(leadership._sure_until_s > now_s for leadership in observed.living(Leadership))
    if (num_serving, num_sure) != (1, 1):
        wrong.append(f"{num_serving} orchestrators serve at rest and {num_sure} lead, expected one")
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
    if exchange.is_job and _GIVEN_UP in exchange.text:
        return []
    return [f"{name} failed with {exchange.outcome}: {exchange.text}"]


def _faults_of_effects(ledger: Ledger) -> list[str]:
    numbers = Counter(EFFECTS)
    wrong = [f"the effect of {value} happened {number} times" for value, number in numbers.items() if number > 1]
    noted = {exchange.value: exchange for exchange in ledger.exchanges if exchange.model == "noted"}
    wrong += [f"an effect of {value}, which nobody sent" for value in numbers if value not in noted]
    answered = [value for value, exchange in noted.items() if exchange.outcome == "answer"]
    return wrong + [f"{value} was answered, and its effect has not happened" for value in answered if not numbers[value]]
