"""The four clients of `tritonclient` behind one interface that hides their differences, so that each check is written once.

Runs in the environment of `tritonclient`.
"""
# pyright: basic
# pyright: reportMissingImports=false
# Tritonclient is in another environment.

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tritonclient.grpc as sync_grpc
import tritonclient.grpc.aio as aio_grpc
import tritonclient.http as sync_http
import tritonclient.http.aio as aio_http
from tritonclient.utils import InferenceServerException

KINDS = ("http", "http.aio", "grpc", "grpc.aio")

_STATUS = {
    "400": "INVALID_ARGUMENT",
    "404": "NOT_FOUND",
    "413": "INVALID_ARGUMENT",
    "499": "CANCELLED",
    "500": "INTERNAL",
    "501": "UNIMPLEMENTED",
    "503": "UNAVAILABLE",
    "504": "DEADLINE_EXCEEDED",
}
"""gRPC's names of HTTP statuses."""


class Client:
    """One of the four. Its coroutine methods are those of `tritonclient`, by name.

    Attributes:
        kind: Which.
        is_http: Whether it speaks HTTP.
    """

    def __init__(self, kind: str, url: str, grpc_address: str) -> None:
        self.kind = kind
        self.is_http = kind.startswith("http")
        self.is_async = kind.endswith("aio")
        self._module: Any = {"http": sync_http, "http.aio": aio_http, "grpc": sync_grpc, "grpc.aio": aio_grpc}[kind]
        self._types: Any = sync_http if self.is_http else sync_grpc
        self.url = url
        self.grpc_address = grpc_address
        self._address = url.removeprefix("http://") if self.is_http else grpc_address
        self.raw: Any = None

    async def __aenter__(self) -> Client:
        self.raw = self._module.InferenceServerClient(self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        closed = self.raw.close()
        if inspect.isawaitable(closed):
            await closed

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Calls one method of the client; gRPC's messages come as JSON, except results of inference."""
        function = getattr(self.raw, method)
        if not self.is_http and "as_json" in inspect.signature(function).parameters:
            kwargs["as_json"] = True
        found = function(*args, **kwargs)
        return await found if inspect.isawaitable(found) else found

    async def refusal(self, method: str, *args: Any, **kwargs: Any) -> tuple[str, str]:
        """Returns status (in gRPC's terms) and text of the error that a method ends with; "none" if it does not."""
        try:
            await self.call(method, *args, **kwargs)
        except InferenceServerException as error:
            status = str(error.status()).removeprefix("StatusCode.")
            return _STATUS.get(status, status), error.message()
        return "none", ""

    def input(self, name: str, array: np.ndarray, datatype: str, is_binary: bool = True) -> Any:
        """Returns an input that carries its data."""
        found = self._types.InferInput(name, list(array.shape), datatype)
        if self.is_http:
            found.set_data_from_numpy(array, binary_data=is_binary)
        else:
            found.set_data_from_numpy(array)
        return found

    def shared_input(self, name: str, shape: Sequence[int], datatype: str, region: str, num_bytes: int, offset: int = 0) -> Any:
        """Returns an input that lies in shared memory."""
        found = self._types.InferInput(name, list(shape), datatype)
        found.set_shared_memory(region, num_bytes, offset)
        return found

    def output(self, name: str, is_binary: bool = True, class_count: int = 0) -> Any:
        """Returns an output to ask for; as its highest classes, if their number is given."""
        if self.is_http:
            return self._types.InferRequestedOutput(name, binary_data=is_binary, class_count=class_count)
        return self._types.InferRequestedOutput(name, class_count=class_count)

    def shared_output(self, name: str, region: str, num_bytes: int, offset: int = 0) -> Any:
        """Returns an output that goes to shared memory."""
        found = self._types.InferRequestedOutput(name)
        found.set_shared_memory(region, num_bytes, offset)
        return found

    async def infer(self, model: str, inputs: Sequence[Any], **kwargs: Any) -> Any:
        """Sends one request and returns tritonclient's result."""
        found = self.raw.infer(model, inputs, **kwargs)
        return await found if inspect.isawaitable(found) else found

    async def behave(self, x: np.ndarray, **parameters: Any) -> np.ndarray:
        """Sends one request of the model `behave`."""
        result = await self.infer("behave", [self.input("x", x, "FP32")], parameters=parameters or None)
        return result.as_numpy("output")


def response_id(client: Client, result: Any) -> str:
    """Returns the id of a response."""
    response = result.get_response()
    return response.get("id", "") if client.is_http else response.id


def parameters_of(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Returns the parameters of one message that came as JSON."""
    return dict(mapping.get(key, {}))
