"""Requests to another server over HTTP: with a limit of time, retries, and DyOrc's errors for its statuses."""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from dyorc import errors

_BY_STATUS: Mapping[int, type[errors.DyOrcError]] = {
    401: errors.AuthenticationError,
    403: errors.PermissionDeniedError,
    404: errors.UnknownModelError,
    408: errors.DeadlineError,
    409: errors.ConflictError,
    413: errors.PayloadTooLargeError,
    429: errors.CapacityError,
    503: errors.CapacityError,
    504: errors.DeadlineError,
}
_MAX_SHOWN = 500
_FIRST_BACKOFF_S = 0.1
_MAX_RETRY_AFTER_S = 30.0


class RemoteService:
    """Another server. Use it on one event loop.

    Args:
        url: Where it is; paths are added to it.
        headers: Sent with each request.
        timeout_s: Of a request with all its attempts; where the answer is a stream, of the wait for each part.
        max_attempts: How many times a request is sent, if the server has no room (429, 503) or cannot be reached.
        max_connections: How many requests it gets at once; others wait.
    """

    def __init__(
        self, url: str, *, headers: Mapping[str, str], timeout_s: float, max_attempts: int, max_connections: int
    ) -> None:
        self._url, self._timeout_s, self._max_attempts = url.rstrip("/"), timeout_s, max_attempts
        limits = httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections)
        self._client = httpx.AsyncClient(headers=dict(headers), timeout=timeout_s, limits=limits, trust_env=False)

    async def post(self, path: str, body: Any, max_answer_bytes: int = 2**28) -> Any:
        """Sends JSON, and returns the JSON of the answer.

        Raises:
            DyOrcError: If there is no answer, or it is an error.
        """
        try:
            async with asyncio.timeout(self._timeout_s), self.send(path, body) as answer:
                content = b""
                async for chunk in answer.aiter_bytes():
                    if len(content := content + chunk) > max_answer_bytes:
                        raise errors.AnswerTooLargeError(f"{self._url}{path} answered with more than {max_answer_bytes} bytes")
        except TimeoutError as error:
            raise errors.DeadlineError(f"{self._url}{path} did not answer within {self._timeout_s} s") from error
        try:
            return httpx.Response(200, content=content).json()
        except ValueError as error:
            raise errors.ExecutionError(f"{self._url}{path} answered {content[:80]!r}, which is no JSON: {error}") from error

    @asynccontextmanager
    async def send(self, path: str, body: Any) -> AsyncGenerator[httpx.Response]:
        """Sends JSON, again if need be, and gives the answer, whose body is still to be read. Leaving early closes it."""
        address = self._url + path
        try:
            num_sent = 1
            while isinstance(answer := await self._sent(address, body), errors.DyOrcError):
                if num_sent == self._max_attempts or not isinstance(answer, errors.CapacityError | errors.TransportError):
                    raise answer
                wait_s = min(answer.retry_after_s or 0.0, _MAX_RETRY_AFTER_S)
                await asyncio.sleep(wait_s + random.random() * _FIRST_BACKOFF_S * 2**num_sent)
                num_sent += 1
            try:
                yield answer
            finally:
                await answer.aclose()
        except httpx.TimeoutException as error:
            raise errors.DeadlineError(f"{address} did not answer within {self._timeout_s} s") from error
        except httpx.HTTPError as error:
            raise errors.TransportError(f"{address}: {type(error).__name__} {error}") from error

    async def _sent(self, address: str, body: Any) -> httpx.Response | errors.DyOrcError:
        try:
            answer = await self._client.send(self._client.build_request("POST", address, json=body), stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return errors.TransportError(f"{address} cannot be reached: {error}")
        return answer if answer.is_success else await self._error_of(answer, address)

    async def _error_of(self, answer: httpx.Response, address: str) -> errors.DyOrcError:
        try:
            text = (await answer.aread()).decode(errors="replace")[:_MAX_SHOWN]
        finally:
            await answer.aclose()
        if answer.is_redirect:
            target = answer.headers.get("location", "")
            return errors.ExecutionError(
                f"{address}: {answer.status_code} is a redirect to {target!r}, which is not followed; "
                f"expected the URL that answers"
            )
        otherwise = errors.InvalidInputError if answer.is_client_error else errors.ExecutionError
        kind = _BY_STATUS.get(answer.status_code, otherwise)
        if issubclass(kind, errors.CapacityError):
            after = answer.headers.get("retry-after", "")
            return kind(f"{address}: {answer.status_code} {text}", float(after) if after.isdigit() else 0.0)
        return kind(f"{address}: {answer.status_code} {text}")
