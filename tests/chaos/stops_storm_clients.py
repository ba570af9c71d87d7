# pyright: basic
# Generated stubs have no types.
"""The load of the storm of stops: clients that know what every answer must be, and note the outcome of each request."""

import itertools
import random
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np

from dyorc.protocol.inference_pb2_grpc import GRPCInferenceServiceStub
from tests import oip, oip_grpc
from tests.client_threads import ClientThreads
from tests.deadlines import TIMEOUT_S

RESTS_S = (0.0, 0.02, 0.6)
"""How long a program with effects takes."""
_KINDS = {"plain": 4, "noted": 3, "once": 2, "aside": 2, "noted job": 1, "once job": 1, "aside job": 1}
"""What a client asks for: a workflow without effects, with one that may be repeated, with one that may not, with one that it does
not wait for; at once or as a job."""
_MAX_PAUSE_S = 0.03
_REFUSED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""What gRPC itself says to calls that a server which stops has not begun; the second, if they had come to its queue."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome of a request.

    Attributes:
        number: Its input, different for each request with an effect.
        began_s: When its client began to send it (monotonic).
        refusal: Why there is no answer: an error's status and text; empty if there is one.
        is_cut: Whether its connection ended, or there was none.
    """

    kind: str
    number: int
    began_s: float
    refusal: str = ""
    is_cut: bool = False


@dataclass
class Ledger:
    """What all clients of a shape have noted. Any thread.

    Attributes:
        jobs: The numbers of jobs that were accepted, by id.
        wrong: The details of each wrong answer.
    """

    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    sent: list[Sent] = field(default_factory=list)
    jobs: dict[str, tuple[str, int]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Clients(ClientThreads):
    """Send while entered, each until its connection ends.

    Args:
        url: Where HTTP is listened to.
        grpc_address: One of the clients uses gRPC.
        folder: Where programs note their effects.
    """

    def __init__(self, url: str, grpc_address: str, folder: Path, ledger: Ledger, num_clients: int, seed: int) -> None:
        self._url, self._grpc_address, self._folder, self._ledger = url, grpc_address, folder, ledger
        super().__init__(partial(self._send_all, random.Random(seed * 1000 + at), at == 0) for at in range(num_clients))

    def _send_all(self, chance: random.Random, has_grpc: bool) -> None:
        with (
            httpx.Client(base_url=self._url, timeout=TIMEOUT_S, trust_env=False) as client,
            grpc.insecure_channel(self._grpc_address) as channel,
        ):
            stub = GRPCInferenceServiceStub(channel)
            while not self.is_over.is_set():
                (kind,) = chance.choices(list(_KINDS), list(_KINDS.values()))
                number, began_s, rest_s = next(self._ledger.numbers), time.monotonic(), chance.choice(RESTS_S)
                try:
                    if has_grpc and "job" not in kind:
                        refusal = self._call(stub, kind, number, rest_s)
                    else:
                        refusal = self._post(client, kind, number, rest_s)
                except (httpx.TransportError, ConnectionError) as error:
                    self._ledger.sent.append(Sent(kind, number, began_s, repr(error), is_cut=True))
                    return
                self._ledger.sent.append(Sent(kind, number, began_s, refusal))
                time.sleep(chance.uniform(0, _MAX_PAUSE_S))

    def _post(self, client: httpx.Client, kind: str, number: int, rest_s: float) -> str:
        model, inputs, parameters = self._request(kind, number, rest_s)
        tensors = [oip.json_tensor(name, array) for name, array in inputs.items()]
        body: dict[str, Any] = {"inputs": tensors, "parameters": parameters}
        if kind.endswith("job"):
            response = client.post("/v1/jobs", json={"model_name": model, **body})
            if not response.is_success:
                return f"{response.status_code} {response.text[:300]}"
            self._ledger.jobs[response.json()["id"]] = (kind, number)
            return ""
        response = client.post(f"/v2/models/{model}/infer", json=body)
        if not response.is_success:
            return f"{response.status_code} {response.text[:300]}"
        self._check(kind, number, oip.read(response).outputs["output"])
        return ""

    def _call(self, stub: Any, kind: str, number: int, rest_s: float) -> str:
        """Asks by gRPC.

        Raises:
            ConnectionError: If the connection is gone.
        """
        model, inputs, parameters = self._request(kind, number, rest_s)
        try:
            response = stub.ModelInfer(oip_grpc.request(model, inputs, **parameters), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            if error.code() in _REFUSED:
                raise ConnectionError(f"gRPC: {error.details()}") from error
            return f"gRPC {error.code()} {error.details()}"
        self._check(kind, number, oip_grpc.outputs_of(response)["output"])
        return ""

    def _request(self, kind: str, number: int, rest_s: float) -> tuple[str, dict[str, Any], dict[str, Any]]:
        folder = str(self._folder)
        match kind.split()[0]:
            case "plain":
                return "quadruple", {"x": np.full(4, number, np.float32)}, {}
            case "noted":
                return "noted", {"x": np.array(number, np.int64)}, {"folder": folder, "rest_s": rest_s}
            case model:
                return model, {"x": np.full(4, number, np.float32)}, {"folder": folder}

    def _check(self, kind: str, number: int, output: oip.Array) -> None:
        right = expected(kind, number)
        if output.tolist() != right:
            self._ledger.wrong.append(f"{kind} of {number}: {output.tolist()}, expected {right}")


def expected(kind: str, number: int) -> Any:
    """Returns the right answer."""
    match kind.split()[0]:
        case "plain":
            return [4.0 * number] * 4
        case "noted":
            return number * number + 1
        case "aside":
            return [2.0 * number] * 4
        case _:
            return [number + 1.0] * 4
