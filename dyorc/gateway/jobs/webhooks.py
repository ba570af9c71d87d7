"""Notifies clients when jobs end: POSTs the job's JSON to the URL that came with it.

Pending notifications are in the store, so they survive restarts; each is sent at least once, or given up after
`webhook_give_up_s`. Only hosts in `webhook_hosts`, exactly as listed, are notified: nothing is resolved or guessed here, and
redirects are not followed, so clients can make the server talk only to listed hosts.
"""

import asyncio
import hashlib
import hmac
import random
import time
from typing import Self
from urllib.parse import urlsplit

import structlog

from dyorc.config import JobsConfig
from dyorc.errors import InvalidInputError, StoreError
from dyorc.gateway.jobs.job_json import job_bytes, trace_of
from dyorc.protocol import media_types
from dyorc.protocol.header_names import SIGNATURE, TRACEPARENT, TRACESTATE
from dyorc.store.base import MAX_DELAY_S, DueWebhook, JobStore

_log = structlog.get_logger("dyorc.jobs")

_PORTS = {"http": 80, "https": 443}
_MAX_AT_ONCE = 16
_MAX_URL_CHARS = 2048
_POLL_S = 1.0
_FIRST_DELAY_S = 1.0


def check_webhook(url: str, config: JobsConfig) -> None:
    """Checks that a URL may be notified.

    Raises:
        InvalidInputError: If it may not.
    """
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        raise InvalidInputError(f"webhook {url[:80]!r} is not a URL: {error}") from None
    if scheme not in _PORTS or not host or parts.username is not None or len(url) > _MAX_URL_CHARS or not url.isprintable():
        raise InvalidInputError(
            f"webhook {url[:80]!r} cannot be used, expected http(s)://host[:port]/path without a user and of at most "
            f"{_MAX_URL_CHARS} characters"
        )
    shown = f"[{host}]" if ":" in host else host
    names = {f"{shown}:{port}"} | ({shown} if port == _PORTS[scheme] else set())
    if names.isdisjoint(entry.lower() for entry in config.webhook_hosts):
        raise InvalidInputError(
            f"webhook host {shown}:{port} is not allowed; the setting JOBS__WEBHOOK_HOSTS lists the allowed hosts"
        )


def signature(secret: str, body: bytes, now_s: int) -> str:
    """Returns the header that proves who sent a body, and when."""
    digest = hmac.new(secret.encode(), f"{now_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={now_s},v1={digest}"


class Webhooks:
    """Sends webhooks while entered. The store must be open."""

    def __init__(self, store: JobStore, config: JobsConfig) -> None:
        self._store = store
        self._config = config
        self._is_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._sending: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        if self._config.webhook_hosts:
            import httpx  # here, because most servers send none: it takes long, and its client reads all certificates

            timeout_s = self._config.webhook_timeout_s
            self._client = httpx.AsyncClient(timeout=timeout_s, follow_redirects=False, trust_env=False)
            self._task = asyncio.create_task(self._send_forever())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stops. Webhooks being sent are sent again later, since it is unknown whether they arrived."""
        self._is_stopping = True
        self._is_due.set()
        if self._task is None:
            return
        await self._task
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        await self._client.aclose()

    def wake(self) -> None:
        """Wakes the sending task: a job has ended."""
        self._is_due.set()

    async def _send_forever(self) -> None:
        while not self._is_stopping:
            self._is_due.clear()
            num_free = _MAX_AT_ONCE - len(self._sending)
            try:
                # A webhook being sent is leased until its time must be up.
                due = await self._store.due_webhooks(num_free, 2 * self._config.webhook_timeout_s) if num_free else []
            except StoreError:
                due = []  # the runner reports that the store is down
            for delivery in due:
                task = asyncio.create_task(self._deliver(delivery))
                self._sending.add(task)
                task.add_done_callback(self._sent)
            if not self._is_stopping and (num_free == 0 or len(due) < num_free):
                await self._wait()

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._sending.discard(task)
        self._is_due.set()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(_POLL_S):
                await self._is_due.wait()
        except TimeoutError:
            return

    async def _deliver(self, delivery: DueWebhook) -> None:
        failure = await self._send(delivery)
        try:
            await self._store_outcome(delivery, failure)
        except StoreError:
            return  # it is due again when its lease ends

    async def _store_outcome(self, delivery: DueWebhook, failure: str | None) -> None:
        job = delivery.job
        if failure is None:
            await self._store.webhook_done(job.id)
        elif job.finished_s is None or time.time() - job.finished_s > self._config.webhook_give_up_s:
            _log.warning("webhook_given_up", job=job.id, failure=failure)
            await self._store.webhook_done(job.id)
        else:
            delay_s = min(MAX_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(delivery.num_attempts, 20)) * random.uniform(0.5, 1.0)
            await self._store.webhook_failed(job.id, delay_s)

    async def _send(self, delivery: DueWebhook) -> str | None:
        """Sends a webhook. Returns what went wrong, or None. Only the response's status matters."""
        import httpx

        body = job_bytes(delivery.job)
        headers = {"content-type": media_types.JSON}
        if (trace := trace_of(delivery.job)) is not None:
            headers[TRACEPARENT] = trace.traceparent
            if trace.state:
                headers[TRACESTATE] = trace.state
        if self._config.webhook_secret:
            headers[SIGNATURE] = signature(self._config.webhook_secret, body, int(time.time()))
        try:
            check_webhook(delivery.job.webhook, self._config)
            async with (
                asyncio.timeout(self._config.webhook_timeout_s),
                self._client.stream("POST", delivery.job.webhook, content=body, headers=headers) as response,
            ):
                return None if response.is_success else f"status {response.status_code}"
        except (httpx.HTTPError, httpx.InvalidURL, InvalidInputError, OSError) as error:
            return f"{type(error).__name__}: {error}"
