"""Clients deploy, ask, read streams and have effects while gateways and orchestrators are killed, frozen and cut off from their
store; then the histories of versions, leases, effects and streams are judged.

    python -m tests.chaos.services_storm [--store sqlite|redis|both] [--seconds N] [--clients N] [--seed N] [--keep FOLDER]
        [--mistakes NAME ...]

The last line is one JSON object; the exit status is 1 if anything is violated. What cannot be explained is printed.
"""

import argparse
import json
import math
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from benchmarks.output_paths import output_folder
from tests.chaos.recorded_service import ACT, TAKE, read
from tests.chaos.services_storm_clients import ServicesClients
from tests.chaos.services_storm_mistakes import MISTAKES
from tests.chaos.services_storm_models import KINDS, SINGLE, write_version
from tests.chaos.services_storm_servers import LEASE_S, Place, Services
from tests.deadlines import wait_until
from tests.histories.deploy_model import FIRST, DeployModel
from tests.histories.effects import LOST, faults_of_effects
from tests.histories.lease_model import LeaseModel, faults_of_acts, faults_of_followers
from tests.histories.linearizability import Verdict, check
from tests.histories.operation import History, Operation
from tests.histories.part_streams import faults_of_stream
from tests.server_process import target

_MODELS_FOR_S = 15.0
"""Clients turn to other models after so long: short histories are decided fast, and long enough for several changes."""
_MAX_PAUSE_S, _LOOK_S = 2.0, 0.02
_FROZEN_S = 2.5
"""Longer than a lease."""
_FAULTS = {"leader_kills": 4, "leader_freezes": 4, "leader_overtakings": 2, "gateway_kills": 1, "gateway_freezes": 1}
_CUTS = {"leader_cuts": 3, "gateway_cuts": 1}
"""Besides, with Redis."""
_OVERTAKEN_S, _WRITING_S = 5.0, 0.3
"""How long a leader is waited for that is about to write what is deployed, then for the next one, and for what that deploys; and
how long the first one may then write."""
_NUM_SHOWN = 5
_LAST = 1000
"""The number of the client that reads last."""


class Storm:
    """Strikes servers by chance.

    Args:
        deploys: What clients deploy.

    Attributes:
        counts: How often, by kind.
        disturbed: From when until when, each time.
    """

    def __init__(self, services: Services, deploys: History, chance: random.Random) -> None:
        self._services, self._deploys, self._chance = services, deploys, chance
        self._faults = _FAULTS | (_CUTS if services.orchestrators[0].link is not None else {})
        self.counts: Counter[str] = Counter()

    def rage(self, seconds: float) -> None:
        """Strikes for so long. Afterwards everything runs, and is connected."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            time.sleep(self._chance.uniform(0, _MAX_PAUSE_S))
            (kind,) = self._chance.choices(list(self._faults), list(self._faults.values()))
            whose, what = kind.split("_")
            victim = self._services.leader() if whose == "leader" else self._chance.choice(self._services.gateways)
            if victim is not None:
                self.counts[kind] += 1
                self._strike(victim, what)
                _tell(f"{kind} of {victim.pid}: {dict(self.counts)}")
            self._services.renew()
            self._services.wait_for_standbys(2)

    def _strike(self, victim: Place, what: str) -> None:
        match what:
            case "kills":
                victim.replace()
                if victim in self._services.gateways:
                    victim.server.wait_until_ready()  # the other one serves meanwhile
            case "overtakings":
                self._overtake(victim)
            case "freezes":
                with victim.stopped():
                    time.sleep(self._chance.uniform(0, _FROZEN_S))
            case _:
                assert victim.link is not None
                with victim.link.cut():
                    time.sleep(self._chance.uniform(0, _FROZEN_S))

    def _overtake(self, victim: Place) -> None:
        """Stops a leader that is about to write what is deployed until another one has deployed.

        That one is killed once the first has gone on, so that a third reads what is written.
        """
        services = self._services
        services.stop_at_note.touch()
        if not _happens_within(_OVERTAKEN_S, lambda: not services.stop_at_note.exists()):
            services.stop_at_note.unlink(missing_ok=True)
            return
        if _happens_within(_OVERTAKEN_S, lambda: services.leader() not in (victim, None)):
            num_before = self._num_deployed()
            _happens_within(_OVERTAKEN_S, lambda: self._num_deployed() > num_before)
        victim.server.process.send_signal(signal.SIGCONT)
        time.sleep(_WRITING_S)
        if (successor := services.leader()) is not None:
            successor.replace()

    def _num_deployed(self) -> int:
        return sum(operation.kind == "deploy" and operation.outcome is not None for operation in self._deploys.operations)


def _happens_within(seconds: float, has_happened: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + seconds
    while not has_happened():
        if time.monotonic() > until_s:
            return False
        time.sleep(_LOOK_S)
    return True


def look_last(services: Services, clients: ServicesClients) -> None:
    """Reads each model once more at each gateway, so that what is lost at the end is missed."""
    for place in services.gateways:
        place.server.wait_until_ready()
    with httpx.Client(timeout=60, trust_env=False) as http:
        for url in services.urls:
            wait_until(lambda url=url: http.get(f"{url}/v2/health/ready").is_success, "a gateway is ready")
            for model in clients.deploys.by_subject():
                clients.read_default(_LAST, http, url, model)
                if model.startswith(SINGLE):
                    clients.ask(_LAST, http, url, model)


def judge_versions(history: History) -> dict[str, Verdict]:
    """Returns the verdict of each model."""
    return {model: check(operations, DeployModel()) for model, operations in history.by_subject().items()}


def judge_leases(operations: Sequence[Operation]) -> tuple[Verdict, list[str]]:
    """Returns whether one order explains the lease, and what leaders and gateways did that they must not."""
    leases = [operation for operation in operations if operation.kind not in (ACT, TAKE)]
    acts = [operation for operation in operations if operation.kind == ACT]
    taken = [operation for operation in operations if operation.kind == TAKE]
    return check(leases, LeaseModel(LEASE_S)), faults_of_acts(acts, leases) + faults_of_followers(taken)


def run(
    store: str, seconds: float, num_clients: int, seed: int, keep: Path | None = None, mistakes: Sequence[str] = ()
) -> dict[str, Any]:
    """Runs a whole storm on one kind of store. Returns figures."""
    chance, started_s = random.Random(seed), time.monotonic()
    num_generations = math.ceil(seconds / _MODELS_FOR_S)
    with tempfile.TemporaryDirectory(prefix="dyorc-h-") as name:
        folder = Path(name)
        models = [f"{kind}_{generation}" for kind in KINDS for generation in range(num_generations)]
        targets = [target("parted", "noted"), *(write_version(folder, model, FIRST) for model in models)]
        with Services(store, folder, targets, mistakes) as services:
            clients = ServicesClients(services.urls, folder, num_clients, seed, _MODELS_FOR_S, num_generations)
            storm = Storm(services, clients.deploys, chance)
            _tell(f"{store}: all is up after {time.monotonic() - started_s:.1f} s")
            with clients:
                storm.rage(seconds)
            look_last(services, clients)
            logs = [place.server.output for place in (*services.gateways, *services.orchestrators)]
        if keep is not None:
            clients.deploys.write(keep / f"deploys-{store}-{seed}.jsonl")
            (keep / f"records-{store}-{seed}.jsonl").write_bytes(services.records.read_bytes())
            (keep / f"logs-{store}-{seed}").write_text("\n\n".join(logs))
        recorded = read(services.records)
        happened = Counter(int(line) for line in (folder / "runs").read_text().split())
    return _figures(clients, recorded, happened) | storm.counts | {"seconds": round(time.monotonic() - started_s, 1)}


def _figures(clients: ServicesClients, recorded: Sequence[Operation], happened: Counter[int]) -> dict[str, Any]:
    versions = judge_versions(clients.deploys)
    lease, misled = judge_leases(recorded)
    faults = {
        "versions": [f"model {model}: {verdict}" for model, verdict in versions.items() if verdict.is_linearizable is False],
        "leases": [*([str(lease)] if lease.is_linearizable is False else []), *misled],
        "effects": faults_of_effects(clients.effects.operations, happened),
        "streams": [fault for operation, parts in clients.streams for fault in faults_of_stream(operation, parts)],
        "answers": clients.wrong,
    }
    for subject, sentences in faults.items():
        for sentence in sentences[:_NUM_SHOWN]:
            _tell(f"{subject}: {sentence}")
    outcomes = Counter(_outcome(operation) for operation in clients.effects.operations)
    return {
        "operations": dict(Counter(operation.kind for operation in clients.deploys.operations)),
        "without_answer": sum(operation.outcome is None for operation in clients.deploys.operations),
        "models": len(versions),
        "leads": len({operation.outcome[1] for operation in recorded if operation.kind == "acquire" and operation.outcome}),
        "changes_of_the_lease": sum(operation.kind not in (ACT, TAKE) for operation in recorded),
        "acts": sum(operation.kind == ACT for operation in recorded),
        "effects": dict(outcomes),
        "streams": dict(Counter(_outcome(operation) for operation, _ in clients.streams)),
        "undecided": sum(verdict.is_linearizable is None for verdict in (*versions.values(), lease)),
        "violations": {subject: len(sentences) for subject, sentences in faults.items()},
    }


def _outcome(operation: Operation) -> str:
    if operation.outcome is None:
        return "no answer"
    word, code = operation.outcome
    return word if not code else LOST if code == LOST else f"{word}: {code}"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "redis", "both"], default="both")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=output_folder, help="a folder for what was recorded")
    parser.add_argument("--mistakes", nargs="+", choices=MISTAKES, default=(), help="that servers make, to see which are noticed")
    options = parser.parse_args()
    stores = ["sqlite", "redis"] if options.store == "both" else [options.store]
    figures = {
        store: run(store, options.seconds, options.clients, options.seed, options.keep, options.mistakes) for store in stores
    }
    print(json.dumps(figures))
    sys.exit(any(any(each["violations"].values()) for each in figures.values()))


if __name__ == "__main__":
    main()
