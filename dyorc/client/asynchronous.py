"""The client for asyncio. Use it on one event loop."""

import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

from dyorc.client.effects import Flow
from dyorc.client.exchanges import AsyncFlowRunner, clock_s
from dyorc.client.http import Cert, ServerEndpoint, Verify, ssl_context
from dyorc.client.http_transports import async_transport
from dyorc.client.job_operations import JobOperations, JobOptions
from dyorc.client.operations import Inputs, Operations, health_path, merge_inputs, statistics_path
from dyorc.client.retries import DEFAULT_RETRIES, Retries, RetryingSender
from dyorc.client.transport_pools import AsyncTransportPool
from dyorc.protocol.api_paths import (
    DEPLOYMENTS,
    LIVE,
    LIVE_NOW,
    MODEL_CONFIG,
    SCALING,
    STATUS,
    TRACE,
    model_path,
    request_path,
    rollback_path,
    unload_path,
)
from dyorc.protocol.inference_answer import Answer
from dyorc.protocol.inference_request import Options
from dyorc.protocol.job_records import JobRecord, JobState
from dyorc.protocol.metadata import ModelMetadata


class AsyncClient:
    """Talks to a DyOrc server over HTTP, on an event loop. NumPy in, NumPy out.

    Arguments, results and errors are those of `dyorc.client.Client`. Many requests may be in flight at once; cancelling a task
    cancels its request.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        retries: Retries = DEFAULT_RETRIES,
        verify: Verify = True,
        cert: Cert | None = None,
        proxy: str | None = None,
        max_connections: int = 100,
        max_answer_bytes: int = 2**30,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        connection = ServerEndpoint.to(url, api_key, max_answer_bytes, headers)
        context = ssl_context(url, verify, cert)
        pool = AsyncTransportPool(lambda: async_transport(context, proxy), max_connections)
        self._runner = AsyncFlowRunner(pool, connection)
        self._operations = Operations(RetryingSender(clock_s, random.random), timeout_s, retries, max_answer_bytes)
        self._jobs = JobOperations(self._operations)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "AsyncClient cannot be pickled or copied: it holds connections; make another AsyncClient from the same address"
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._runner.aclose()

    async def infer(
        self, model: str, inputs: Inputs | None = None, /, *, version: str | None = None, timeout_s: float | None = None,
        priority: int = 0, request_id: str = "", outputs: Sequence[str] | None = None, retries: Retries | None = None,
        **named: Any,
    ) -> Any:  # fmt: skip
        """Runs a model; see `Client.infer`."""
        options = Options(version, timeout_s, priority, False, request_id, outputs)
        return (await self._runner.run(self._operations.infer(model, merge_inputs(inputs, named), options, retries))).value

    async def answer(
        self, model: str, inputs: Inputs | None = None, /, *, version: str | None = None, timeout_s: float | None = None,
        priority: int = 0, explain: bool = False, request_id: str = "", outputs: Sequence[str] | None = None,
        retries: Retries | None = None, **named: Any,
    ) -> Answer:  # fmt: skip
        """Runs a model and returns everything the server says; see `Client.answer`."""
        options = Options(version, timeout_s, priority, explain, request_id, outputs)
        return await self._runner.run(self._operations.infer(model, merge_inputs(inputs, named), options, retries))

    def stream(
        self, model: str, inputs: Inputs | None = None, /, *, version: str | None = None, timeout_s: float | None = None,
        priority: int = 0, request_id: str = "", outputs: Sequence[str] | None = None, retries: Retries | None = None,
        **named: Any,
    ) -> AsyncGenerator[Any]:  # fmt: skip
        """Runs a model that answers in parts; see `Client.stream`. Close the generator if you stop early."""
        options = Options(version, timeout_s, priority, False, request_id, outputs)
        return self._runner.parts(self._operations.stream(model, merge_inputs(inputs, named), options, retries))

    async def run(
        self, model: str, inputs: Inputs | None = None, /, *, version: str | None = None, timeout_s: float | None = None,
        request_id: str = "", retries: Retries | None = None, **named: Any,
    ) -> Any:  # fmt: skip
        """Runs a model on plain values; see `Client.run`."""
        options = Options(version, timeout_s, request_id=request_id)
        return await self._runner.run(self._operations.run(model, merge_inputs(inputs, named), options, retries))

    def run_stream(
        self, model: str, inputs: Inputs | None = None, /, *, version: str | None = None, timeout_s: float | None = None,
        request_id: str = "", retries: Retries | None = None, **named: Any,
    ) -> AsyncGenerator[Any]:  # fmt: skip
        """Runs a model that answers in parts on plain values; see `Client.run_stream`. Close the generator if you stop early."""
        options = Options(version, timeout_s, request_id=request_id)
        return self._runner.parts(self._operations.run_stream(model, merge_inputs(inputs, named), options, retries))

    async def submit(
        self, model: str, inputs: Inputs | None = None, /, *, idempotency_key: str | None = None, webhook: str | None = None,
        ttl_s: float | None = None, run_timeout_s: float | None = None, version: str | None = None,
        timeout_s: float | None = None, priority: int = 0, request_id: str = "", outputs: Sequence[str] | None = None,
        **named: Any,
    ) -> "AsyncJob":  # fmt: skip
        """Submits a request as a durable job; see `Client.submit`."""
        options = Options(version, timeout_s, priority, False, request_id, outputs)
        job = JobOptions(idempotency_key, webhook, ttl_s, run_timeout_s)
        return AsyncJob(
            self._runner, self._jobs, await self._runner.run(self._jobs.submit(model, merge_inputs(inputs, named), options, job))
        )

    async def job(self, job_id: str) -> "AsyncJob":
        """Returns a job by its id."""
        return AsyncJob(self._runner, self._jobs, await self._runner.run(self._jobs.get(job_id)))

    async def jobs(self, *, state: JobState | None = None, max_jobs: int = 1000) -> list["AsyncJob"]:
        """Returns the caller's jobs, all or only those in one state."""
        return [AsyncJob(self._runner, self._jobs, record) for record in await self._runner.run(self._jobs.jobs(state, max_jobs))]

    async def models(self) -> list[str]:
        """Returns the names of all models."""
        return await self._runner.run(self._operations.models())

    async def metadata(self, model: str, *, version: str | None = None) -> ModelMetadata:
        """Returns a model's current inputs and outputs."""
        return await self._runner.run(self._operations.metadata(model, version))

    async def config(self, model: str, *, version: str | None = None) -> dict[str, Any]:
        """Returns a model's configuration, in Triton's form."""
        return await self._runner.run(self._operations.get_object(model_path(model, version, MODEL_CONFIG)))

    async def statistics(self, model: str | None = None, *, version: str | None = None) -> dict[str, Any]:
        """Returns how many times and how long a model, or every model, has run; in Triton's form."""
        return await self._runner.run(self._operations.get_object(statistics_path(model, version)))

    async def status(self) -> dict[str, Any]:
        """Returns the server's current state: its processes, each program's replicas, queue and cost, and its guesses."""
        return await self._runner.run(self._operations.get_object(STATUS))

    async def live(self) -> dict[str, Any]:
        """Returns what the server is doing now: rates and latencies of workflows; replicas, queues and batches of programs."""
        return await self._runner.run(self._operations.get_object(LIVE_NOW))

    async def scaling(self) -> dict[str, Any]:
        """Returns how many replicas each program has and should have, and why."""
        return await self._runner.run(self._operations.get_object(SCALING))

    async def scale(self, program: str, *, num_warm: int | None = None, num_parked: int | None = None) -> dict[str, Any]:
        """Sets how many replicas of a program stay warm and parked; None leaves a number to the server's forecast again."""
        return await self._runner.run(self._operations.scale(program, num_warm, num_parked))

    async def deployments(self) -> dict[str, Any]:
        """Returns the versions of each workflow, by its name. Like the next three methods, it needs a key that may manage."""
        return await self._runner.run(self._operations.get_object(DEPLOYMENTS))

    async def deploy(
        self,
        target: str,
        *,
        version: str = "",
        group: str = "",
        share: float | None = None,
        shadow: float = 0.0,
        sticky: str | None = None,
        rules: Mapping[str, Any] | None = None,
        fresh: bool = False,
        allow_incompatible: bool = False,
        after_replay: int = 0,
        max_differences: int = 0,
    ) -> dict[str, Any]:
        """Loads a version of a workflow into the server, and returns its versions; see `Client.deploy`."""
        order = {"target": target, "version": version, "group": group, "share": share, "shadow": shadow, "sticky": sticky}
        order |= {"rules": None if rules is None else dict(rules)}
        order |= {"is_fresh": fresh, "is_incompatible_allowed": allow_incompatible}
        order |= {"after_replay": after_replay, "max_differences": max_differences}
        return await self._runner.run(self._operations.change(DEPLOYMENTS, order))

    async def undeploy(self, model: str, version: str | None = None) -> dict[str, Any]:
        """Takes a version, or without one the whole model, out of service. Requests that have begun are still answered."""
        return await self._runner.run(self._operations.change(unload_path(model), {"parameters": {"version": version}}))

    async def rollback(self, model: str) -> dict[str, Any]:
        """Undoes the last change of a model's versions. Call it again to undo the one before."""
        return await self._runner.run(self._operations.change(rollback_path(model), {}))

    async def requests(
        self,
        *,
        workflow: str | None = None,
        order: Literal["latest", "slowest"] = "latest",
        outcome: Literal["all", "ok", "failed"] = "all",
        limit: int = 50,
    ) -> list[dict[str, Any]]:
        """Returns summaries of requests that have ended: how long each took, and what took most of that time."""
        return await self._runner.run(self._operations.requests(workflow, order, outcome, limit))

    async def request(self, request_id: str) -> dict[str, Any]:
        """Returns the record of a request that has ended: where its time went, its calls, batches and guesses."""
        return await self._runner.run(self._operations.get_object(request_path(request_id)))

    async def tail(self, workflow: str | None = None, *, share: float = 0.01, seconds: float | None = None) -> dict[str, Any]:
        """Returns where the time of the slowest requests went, beside typical ones, by the stages of their critical paths.

        Args:
            workflow: Only requests of this one.
            share: How many of the requests count as the slowest, as a fraction: above 0, at most 0.5.
            seconds: Only requests that ended in the last seconds; None: as far as the server remembers.

        Raises:
            InvalidInputError: If a value is out of its range.
        """
        return await self._runner.run(self._operations.tail(workflow, share, seconds))

    async def trace(self, seconds: float = 5.0) -> dict[str, Any]:
        """Returns the requests that ended in the last seconds, and their batches, in Chrome's trace format."""
        return await self._runner.run(self._operations.get_object(f"{TRACE}?seconds={seconds:g}"))

    async def is_live(self) -> bool:
        """Returns whether the server answers."""
        return await self._runner.run(self._operations.is_healthy(LIVE))

    async def is_ready(self, model: str | None = None) -> bool:
        """Returns whether a model, or every model, can run now."""
        return await self._runner.run(self._operations.is_healthy(health_path(model)))

    async def why_not_ready(self, model: str | None = None) -> str:
        """Returns why a model, or any model, cannot run now; empty if it can."""
        return await self._runner.run(self._operations.why_unhealthy(health_path(model)))

    async def wait_until_ready(self, timeout_s: float | None = None, *, model: str | None = None) -> None:
        """Returns once a model, or every model, can run. `DeadlineError`, with the reason, if that takes too long."""
        await self._runner.run(self._operations.wait_until_ready(health_path(model), timeout_s))


class AsyncJob:
    """A durable job, as of its last refresh."""

    def __init__(self, runner: AsyncFlowRunner, jobs: JobOperations, record: JobRecord) -> None:
        self._runner = runner
        self._jobs = jobs
        self.record = record

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "AsyncJob cannot be pickled or copied: it holds connections; pass on its `id`, and ask a client for `job(id)`"
        )

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def state(self) -> JobState:
        return self.record.state

    async def refresh(self) -> Self:
        """Refreshes its state."""
        return await self._update(self._jobs.get(self.id))

    async def wait(self, timeout_s: float | None = None) -> Self:
        """Returns once it has ended, in any state. `DeadlineError` if that takes longer; the job goes on then."""
        return await self._update(self._jobs.wait(self.id, timeout_s))

    async def result(self, timeout_s: float | None = None) -> Any:
        """Waits for its end, and returns what `infer` would have returned. Raises the error with which it failed."""
        return (await self.answer(timeout_s)).value

    async def answer(self, timeout_s: float | None = None) -> Answer:
        """Returns what `result` returns, with everything the server says."""
        return await self._runner.run(self._jobs.result(self.id, timeout_s))

    async def cancel(self) -> Self:
        """Ends it."""
        return await self._update(self._jobs.cancel(self.id))

    async def delete(self) -> None:
        """Cancels it if it has not ended, and deletes it from the server."""
        await self._runner.run(self._jobs.delete(self.id))

    async def _update(self, flow: Flow[JobRecord]) -> Self:
        self.record = await self._runner.run(flow)
        return self
