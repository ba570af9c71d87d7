"""The load of the jobs' storm whose histories are judged: clients of two tenants, who use the same idempotency keys."""

import contextlib
import random
import threading
import time
from collections import defaultdict
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import msgspec

from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from tests.chaos.jobs_storm_servers import Servers
from tests.client_threads import ClientThreads
from tests.histories.operation import History, NotSentError

TTL_S = 1.0
"""How long jobs of some keys are kept after their end. Others stay."""
_KEYS_AT_ONCE = 6
_KEYS_FOR_S = 1.5
"""Clients turn to other keys after so long: short histories are decided fast."""
_MAX_GENERATIONS_BACK = 8
"""And now and then come back to those whose jobs may have been forgotten."""
_KINDS = {"submit": 6, "look": 8, "list": 2, "cancel": 2, "forget": 1}
_REST_S = (0.0, 0.01, 0.4)
_ANSWER_S = 10.0
_REFUSED_S = 0.02
_LISTED = 500


def write_keys(file: Path) -> list[str]:
    """Writes a file with two tenants, and returns a key of each."""
    made = [new_key() for _ in range(2)]
    write_tenants(file, [TenantRecord(name=f"tenant-{at}", keys=[record]) for at, (_, record) in enumerate(made)])
    return [key for key, _ in made]


def is_short_lived(subject: str) -> bool:
    """Returns whether a key's jobs are forgotten after `TTL_S`."""
    return int(subject) // 2 % 3 == 0


class Webhooks:
    """What has been sent of ended jobs. Any thread.

    Attributes:
        states: By job.
    """

    def __init__(self) -> None:
        self.states: dict[str, set[str]] = defaultdict(set)
        states = self.states

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                try:
                    job = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
                except msgspec.DecodeError:
                    return  # its sender was killed meanwhile
                states[job["id"]].add(job["state"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return

        self.receiver = Receiver


class JobClients(ClientThreads):
    """Do operations of their choice while entered, and record them. Even keys are those of the first tenant, odd ones those of
    the second, which sends the same text as its idempotency key.

    Args:
        keys: Of the tenants.
        webhook: Where all jobs send their end.

    Attributes:
        history: What they saw.
        wrong: Results that are not right, and answers that no operation can have.
    """

    def __init__(self, at: Servers, folder: Path, keys: list[str], webhook: str, num_clients: int, seed: int) -> None:
        self.history = History()
        self.wrong: list[str] = []
        self._servers, self._folder, self._webhook = at, folder, webhook
        self._headers = [{"x-api-key": key} for key in keys]
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._ids: dict[str, list[str]] = defaultdict(list)
        super().__init__(partial(self._do_all, client, random.Random(seed * 1000 + client)) for client in range(num_clients))

    def _do_all(self, client: int, chance: random.Random) -> None:
        with httpx.Client(timeout=_ANSWER_S, trust_env=False) as http:
            while not self.is_over.is_set():
                subject = self._subject(chance)
                (kind,) = chance.choices(list(_KINDS), list(_KINDS.values()))
                with self._lock:
                    known = list(self._ids[subject])
                if kind == "submit" or not known:
                    self._submit(client, http, subject, chance)
                else:
                    self._ask(client, http, subject, kind, chance.choice(known), chance)

    def _subject(self, chance: random.Random) -> str:
        generation = int((time.monotonic() - self._began_s) / _KEYS_FOR_S)
        if chance.random() < 0.2:
            generation = max(0, generation - chance.randint(1, _MAX_GENERATIONS_BACK))
        return f"{generation * _KEYS_AT_ONCE + chance.randrange(_KEYS_AT_ONCE)}"

    def _of_tenant(self, subject: str, *, is_other: bool = False) -> dict[str, str]:
        return self._headers[(int(subject) + is_other) % 2]

    def _submit(self, client: int, http: httpx.Client, subject: str, chance: random.Random) -> None:
        body = chance.choice("aaab")
        number = number_of(subject, body)
        tensor = {"name": "x", "shape": [], "datatype": "INT64", "data": [number]}
        parameters = {"folder": str(self._folder), "rest_s": _REST_S[number % len(_REST_S)]}
        request: dict[str, Any] = {"model_name": "noted", "inputs": [tensor], "parameters": parameters, "webhook": self._webhook}
        if is_short_lived(subject):
            request["ttl_s"] = TTL_S
        headers = {"idempotency-key": f"{int(subject) // 2}", **self._of_tenant(subject)}
        with self.history.recorded(client, "submit", subject, body) as operation:
            answer = self._sent(http, chance, "POST", "/v1/jobs", json=request, headers=headers)
            if answer is not None and answer.status_code == 202:
                operation.outcome = ["id", job_id := answer.json()["id"]]
                with self._lock:
                    if job_id not in self._ids[subject]:
                        self._ids[subject].append(job_id)
            elif answer is not None and answer.status_code == 409:
                operation.outcome = ["conflict", ""]

    def _ask(self, client: int, http: httpx.Client, subject: str, kind: str, job_id: str, chance: random.Random) -> None:
        if kind == "list":
            self._list(client, http, subject, job_id, chance)
            return
        method, path = {
            "look": ("GET", f"/v1/jobs/{job_id}"),
            "cancel": ("POST", f"/v1/jobs/{job_id}/cancel"),
            "forget": ("DELETE", f"/v1/jobs/{job_id}"),
        }[kind]
        with self.history.recorded(client, kind, subject, job_id) as operation:
            answer = self._sent(http, chance, method, path, headers=self._of_tenant(subject))
            if answer is None:
                return
            if answer.status_code == 404:
                operation.outcome = ["gone", ""]
            elif answer.is_success:
                operation.outcome = ["forgotten", ""] if kind == "forget" else ["state", answer.json()["state"]]
        if operation.outcome == ["state", "succeeded"]:
            self._check_result(http, chance, subject, job_id)
        self._ask_as_stranger(http, chance, subject, method, path)

    def _list(self, client: int, http: httpx.Client, subject: str, job_id: str, chance: random.Random) -> None:
        """Reads the tenant's jobs, and notes what is said of one."""
        states: dict[str, str] = {}  # none if the request was not sent
        with self.history.recorded(client, "list", subject, job_id) as operation:
            headers = self._of_tenant(subject)
            answer = self._sent(http, chance, "GET", "/v1/jobs", params={"limit": _LISTED}, headers=headers)
            if answer is None:
                return
            states = {job["id"]: job["state"] for job in answer.json()["jobs"]}
            if job_id in states:
                operation.outcome = ["state", states[job_id]]
            elif answer.json()["next"] is None:
                operation.outcome = ["gone", ""]
        with self._lock:
            strange = [
                known for key, ids in self._ids.items() if (int(key) - int(subject)) % 2 for known in ids if known in states
            ]
        if strange:
            self.wrong.append(f"a tenant's list has jobs of another: {strange}")

    def _ask_as_stranger(self, http: httpx.Client, chance: random.Random, subject: str, method: str, path: str) -> None:
        """Does the same as the other tenant, who must not even see that there is such a job."""
        with contextlib.suppress(NotSentError):
            answer = self._sent(http, chance, method, path, headers=self._of_tenant(subject, is_other=True))
            if answer is not None and answer.status_code != 404:
                self.wrong.append(f"another tenant did {method} {path}: {answer.status_code} {answer.text[:200]}")

    def _check_result(self, http: httpx.Client, chance: random.Random, subject: str, job_id: str) -> None:
        answer = None
        with contextlib.suppress(NotSentError):
            answer = self._sent(http, chance, "GET", f"/v1/jobs/{job_id}/result", headers=self._of_tenant(subject))
        if answer is None or answer.status_code == 404:
            return
        right = [[number_of(subject, body) ** 2 + 1] for body in "ab"]
        if not answer.is_success or answer.json()["outputs"][0]["data"] not in right:
            self.wrong.append(f"job {job_id} of key {subject} succeeded, and has {answer.status_code} {answer.text[:200]}")

    def ends(self, http: httpx.Client, url: str) -> dict[str, str]:
        """Returns the states of all jobs that are there, by id."""
        states: dict[str, str] = {}
        for headers in self._headers:
            after: str | None = ""
            while after is not None:
                page = http.get(f"{url}/v1/jobs", params={"limit": _LISTED, "after": after}, headers=headers).json()
                states |= {job["id"]: job["state"] for job in page["jobs"]}
                after = page["next"]
        return states

    def _sent(self, http: httpx.Client, chance: random.Random, method: str, path: str, **given: Any) -> httpx.Response | None:
        """Sends a request to one of the servers. Returns None if nobody knows what became of it.

        Raises:
            NotSentError: If no server was there.
        """
        try:
            answer = http.request(method, chance.choice(self._servers.urls) + path, **given)
        except httpx.ConnectError as error:
            time.sleep(_REFUSED_S)
            raise NotSentError from error
        except httpx.TransportError:
            return None
        if answer.status_code in (503, 504):
            return None
        if not answer.is_success and answer.status_code not in (404, 409):
            self.wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
            return None
        return answer


def number_of(subject: str, body: str) -> int:
    return 2 * int(subject) + (body == "b")
