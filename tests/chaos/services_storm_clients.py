"""The load of the storm whose histories are judged: clients of two gateways that deploy, ask, read streams and have effects."""

import contextlib
import itertools
import json
import random
import threading
import time
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.services_storm_models import ONCE, PARTS, SINGLE, write_version
from tests.client_threads import ClientThreads
from tests.histories.operation import History, NotSentError, Operation
from tests.histories.part_streams import Part

_KINDS = {"ask": 12, "list": 2, "deploy": 1.0, "rollback": 1.0, "effect": 5, PARTS: 3, ONCE: 1}
_NUM_PARTS = 40
_ANSWER_S = 30.0
_REST_S = 0.01
_EFFECTS_REST_S = (0.0, 0.0, 0.5)
"""How long programs rest after an effect: long enough for their orchestrator to be killed before its answer."""
_REFUSED_S = 0.05
_UNKNOWN = (502, 503, 504)
"""What is said when a change may have been made, or not."""


class ServicesClients(ClientThreads):
    """Do operations of their choice while entered, and record them. None is tried again.

    Args:
        urls: The gateways.
        folder: For the source code of versions, and for effects.
        models_for_s: Clients turn to other models after so long.
        num_generations: How many models there are of each kind.

    Attributes:
        deploys: What they saw of versions, by model.
        effects: What they saw of effects.
        streams: What they saw of answers in parts, with the parts.
        wrong: Answers that no operation can have.
    """

    def __init__(
        self, urls: list[str], folder: Path, num_clients: int, seed: int, models_for_s: float, num_generations: int
    ) -> None:
        self.deploys, self.effects = History(), History()
        self.streams: list[tuple[Operation, list[Part]]] = []
        self.wrong: list[str] = []
        self._stream_history = History()
        self._urls, self._folder = urls, folder
        self._models_for_s, self._num_generations = models_for_s, num_generations
        self._began_s = time.monotonic()
        self._versions = itertools.count(2)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        super().__init__(partial(self._do_all, client, random.Random(seed * 1000 + client)) for client in range(num_clients))

    def _do_all(self, client: int, chance: random.Random) -> None:
        with httpx.Client(timeout=_ANSWER_S, trust_env=False) as http:
            while not self.is_over.is_set():
                (kind,) = chance.choices(list(_KINDS), list(_KINDS.values()))
                self._do(kind, client, http, chance)
                time.sleep(_REST_S)

    def _do(self, kind: str, client: int, http: httpx.Client, chance: random.Random) -> None:
        url = chance.choice(self._urls)
        match kind:
            case "ask":
                self.ask(client, http, url, self._model(SINGLE))
            case "list":
                self.read_default(client, http, url, self._model(chance.choice((SINGLE, PARTS))))
            case "deploy":
                self._deploy(client, http, url, self._model(chance.choice((SINGLE, SINGLE, PARTS))))
            case "rollback":
                model = self._model(SINGLE)
                for _ in range(chance.choice((0, 2))):  # so that it is seen by how much a rollback goes back
                    self._deploy(client, http, url, model)
                self._roll_back(client, http, url, model)
            case "effect":
                self._have_effect(client, http, url, chance.choice(_EFFECTS_REST_S))
            case _:
                self._read(client, http, url, self._model(kind))

    def _model(self, kind: str) -> str:
        generation = int((time.monotonic() - self._began_s) / self._models_for_s)
        return f"{kind}_{min(generation, self._num_generations - 1)}"

    # Versions

    def _deploy(self, client: int, http: httpx.Client, url: str, model: str) -> None:
        version = str(next(self._versions))
        body = {"target": write_version(self._folder, model, version), "version": version}
        with self.deploys.recorded(client, "deploy", model, version) as operation:
            self._change(operation, http, f"{url}/deployments", body)

    def _roll_back(self, client: int, http: httpx.Client, url: str, model: str) -> None:
        with self.deploys.recorded(client, "rollback", model) as operation:
            self._change(operation, http, f"{url}/deployments/{model}/rollback", {})

    def _change(self, operation: Operation, http: httpx.Client, url: str, body: dict[str, Any]) -> None:
        answer = self._sent(http, "POST", url, json=body)
        if answer is None:
            return
        if answer.is_success:
            operation.outcome = ["version", answer.json()["default"]]
        elif answer.status_code == 409 and operation.kind == "rollback":
            operation.outcome = ["conflict", ""]
        else:
            self._note_wrong(operation, answer)

    def ask(self, client: int, http: httpx.Client, url: str, model: str) -> None:
        """Has a model answer a request."""
        body = {"inputs": [{"name": "x", "shape": [], "datatype": "INT64", "data": [1]}]}
        with self.deploys.recorded(client, "ask", model, url) as operation:
            answer = self._sent(http, "POST", f"{url}/v2/models/{model}/infer", json=body)
            if answer is None:
                return
            if not answer.is_success:
                self._note_wrong(operation, answer)
                return
            said = answer.json()
            operation.outcome = ["version", said["model_version"]]
            if str(said["outputs"][0]["data"][0]) != said["model_version"]:
                self.wrong.append(f"a version answered in another one's name: {answer.text[:300]}")

    def read_default(self, client: int, http: httpx.Client, url: str, model: str) -> None:
        """Reads which version of a model is the default."""
        with self.deploys.recorded(client, "list", model, url) as operation:
            answer = self._sent(http, "GET", f"{url}/deployments")
            if answer is None or model not in (listed := answer.json()):
                return
            operation.outcome = ["version", listed[model]["default"]]

    # Effects

    def _have_effect(self, client: int, http: httpx.Client, url: str, rest_s: float) -> None:
        number = next(self._numbers)
        tensor = {"name": "x", "shape": [], "datatype": "INT64", "data": [number]}
        body = {"inputs": [tensor], "parameters": {"folder": str(self._folder), "rest_s": rest_s}}
        with self.effects.recorded(client, "effect", str(number)) as operation, _unanswered():
            answer = http.post(f"{url}/v2/models/noted/infer", json=body)
            operation.outcome = ["answered", ""] if answer.is_success else ["failed", answer.json()["code"]]

    # Streams

    def _read(self, client: int, http: httpx.Client, url: str, model: str) -> None:
        body = {"inputs": [{"name": "num_parts", "shape": [], "datatype": "INT64", "data": [_NUM_PARTS]}]}
        parts: list[Part] = []
        argument = [_NUM_PARTS, model.startswith(ONCE)]
        with (
            self._stream_history.recorded(client, "read", model, argument) as operation,
            _unanswered(),
            http.stream("POST", f"{url}/v2/models/{model}/infer_stream", json=body) as answer,
        ):
            with self._lock:
                self.streams.append((operation, parts))
            operation.outcome = self._read_parts(answer, parts) if answer.is_success else ["failed", _code_of(answer.read())]

    def _read_parts(self, answer: httpx.Response, parts: list[Part]) -> list[str] | None:
        """Reads parts, and returns how the stream ended."""
        for line in answer.iter_lines():
            if not line.startswith("data: "):
                continue
            event = json.loads(line.removeprefix("data: "))
            if "outputs" not in event:
                return ["failed", event.get("code", line)]
            at, made_by, pid = event["outputs"][0]["data"]
            parts.append(Part(at=at, made_by=str(made_by), version=event["model_version"], pid=pid))
        return ["ended", ""]

    def _sent(self, http: httpx.Client, method: str, url: str, **given: Any) -> httpx.Response | None:
        """Sends a request. Returns None if nobody knows what became of it.

        Raises:
            NotSentError: If no gateway was there.
        """
        with _unanswered():
            answer = http.request(method, url, **given)
            return None if answer.status_code in _UNKNOWN else answer
        return None

    def _note_wrong(self, operation: Operation, answer: httpx.Response) -> None:
        self.wrong.append(f"{operation}: {answer.status_code} {answer.text[:300]}")


@contextlib.contextmanager
def _unanswered() -> Generator[None]:
    """Ends the block where no answer comes.

    Raises:
        NotSentError: If no gateway was there.
    """
    try:
        yield
    except httpx.ConnectError as error:
        time.sleep(_REFUSED_S)
        raise NotSentError from error
    except httpx.TransportError:
        return


def _code_of(body: bytes) -> str:
    return str(json.loads(body)["code"])
