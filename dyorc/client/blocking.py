"""The blocking client. Several threads may use it at once.

Here and in `asynchronous`, each method writes its options out. A shared TypedDict could not: inputs come by name, too, and mypy
has no TypedDict with room for other names.
"""

import random
from collections.abc import Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

from dyorc.client.effects import Flow
from dyorc.client.exchanges import FlowRunner, clock_s
from dyorc.client.http import Cert, ServerEndpoint, Verify, ssl_context
from dyorc.client.http_transports import transport
from dyorc.client.job_operations import JobOperations, JobOptions
from dyorc.client.operations import Inputs, Operations, health_path, merge_inputs, statistics_path
from dyorc.client.retries import DEFAULT_RETRIES, Retries, RetryingSender
from dyorc.client.transport_pools import TransportPool
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


class Client:
    """Talks to a DyOrc server over HTTP. NumPy in, NumPy out.

    Args:
        url: ``http://host:port`` or ``https://...``, followed by the server's path if it has one.
        api_key: The API key of all requests.
        timeout_s: Default limit of each operation, retries included, in seconds; infinity for no limit. Each request says
            how much is left.
        retries: When requests are sent again.
        verify: For https: True, a file or folder of authorities, an `ssl.SSLContext`, or False for no check.
        cert: For https: a file with our own certificate and key, or one of each.
        proxy: URL of a proxy. Proxies in the environment are ignored.
        max_connections: Concurrent connections; further requests wait.
        max_answer_bytes: The longest answer, or part of a stream, that is accepted.
        headers: Sent with each request besides the client's own, such as ``{"x-session-id": "7"}``.

    Raises:
        ValueError: If the address, the key, a header or a file cannot be used.

    Every operation raises `DyOrcError`, of the class that the server raised; `DeadlineError` when its time is up,
    `TransportError` if the server cannot be reached or its answer cannot be read, `InvalidInputError` if a value cannot be sent.
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
        pool = TransportPool(lambda: transport(context, proxy), max_connections)
        self._runner = FlowRunner(pool, connection)
        self._operations = Operations(RetryingSender(clock_s, random.random), timeout_s, retries, max_answer_bytes)
        self._jobs = JobOperations(self._operations)

    def __reduce__(self) -> NoReturn:
        raise TypeError("Client cannot be pickled or copied: it holds connections; make another Client from the same address")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections."""
        self._runner.close()

    def infer(
        self, model: str, inputs: Inputs | None = None, /, *, version: str | None = None, timeout_s: float | None = None,
        priority: int = 0, request_id: str = "", outputs: Sequence[str] | None = None, retries: Retries | None = None,
        **named: Any,
    ) -> Any:  # fmt: skip
        """Runs a model.

        Args:
            inputs: Inputs by name, for names that are also options here.
            timeout_s: None for the client's.
            priority: 1 is the highest; 0, the default, comes last.
            request_id: Returned with the answer.
            outputs: Names of the outputs to send; None, or nothing, for all.
            retries: None for the client's.
            named: Inputs by name. What the model calls an input becomes a tensor: arrays and torch tensors of their own type,
                numbers, lists and texts of the declared one. Anything else is a parameter: bool, int, float or str.

        Returns:
            An array, if the model has one output or one was asked for; else a dict of arrays by name.
        """
        options = Options(version, timeout_s, priority, False, request_id, outputs)
        return self._runner.run(self._operations.infer(model, merge_inputs(inputs, named), options, retries)).value

    def answer(
        self, model: str, inputs: Inputs | None = None, /, *, version: str | None = None, timeout_s: float | None = None,
        priority: int = 0, explain: bool = False, request_id: str = "", outputs: Sequence[str] | None = None,
        retries: Retries | None = None, **named: Any,
    ) -> Answer:  # fmt: skip
        """Runs a model as `infer` does, and returns everything the server says; with `explain`, also what was done and why."""
        options = Options(version, timeout_s, priority, explain, request_id, outputs)
        return self._runner.run(self._operations.infer(model, merge_inputs(inputs, named), options, retries))

    def stream(
        self, model: str, inputs: Inputs | None = None, /, *, version: str | None = None, timeout_s: float | None = None,
        priority: int = 0, request_id: str = "", outputs: Sequence[str] | None = None, retries: Retries | None = None,
        **named: Any,
    ) -> Generator[Any]:  # fmt: skip
        """Runs a model that answers in parts, and yields each as it comes. Arguments and parts are those of `infer`.

        The request is sent when the first part is asked for; `timeout_s` covers all parts. If you stop early, close the
        generator, which cancels the request. Once the server has begun to answer, the request is not sent again.
        """
        options = Options(version, timeout_s, priority, False, request_id, outputs)
        return self._runner.parts(self._operations.stream(model, merge_inputs(inputs, named), options, retries))

    def run(
        self, model: str, inputs: Inputs | None = None, /, *, version: str | None = None, timeout_s: float | None = None,
        request_id: str = "", retries: Retries | None = None, **named: Any,
    ) -> Any:  # fmt: skip
        """Runs a model on plain values, as ``POST /run/NAME`` does. Arguments that are not listed are those of `infer`.

        Args:
            inputs: Values by the names of the model's parameters, for names that are also options here.
            named: Values by name: what JSON carries, also dataclasses, pydantic models, arrays and tensors;
                `bytes`, `dyorc.File` and `PIL.Image.Image` for files.

        Returns:
            What the workflow returned, as JSON has it: dicts, lists, texts, numbers; a file as `bytes`. If it answers in parts,
            all of them in a list.

        Raises:
            InvalidInputError: Also if a value would arrive as another one: NaN in a value that is no tensor, `bytes` for a text,
                a picture that no file can hold. Names the parameter.
        """
        options = Options(version, timeout_s, request_id=request_id)
        return self._runner.run(self._operations.run(model, merge_inputs(inputs, named), options, retries))

    def run_stream(
        self, model: str, inputs: Inputs | None = None, /, *, version: str | None = None, timeout_s: float | None = None,
        request_id: str = "", retries: Retries | None = None, **named: Any,
    ) -> Generator[Any]:  # fmt: skip
        """Runs a model that answers in parts on plain values, and yields each as it comes; a file in a part is base64.

        Arguments are those of `run`; for the rest see `stream`.
        """
        options = Options(version, timeout_s, request_id=request_id)
        return self._runner.parts(self._operations.run_stream(model, merge_inputs(inputs, named), options, retries))

    def submit(
        self, model: str, inputs: Inputs | None = None, /, *, idempotency_key: str | None = None, webhook: str | None = None,
        ttl_s: float | None = None, run_timeout_s: float | None = None, version: str | None = None,
        timeout_s: float | None = None, priority: int = 0, request_id: str = "", outputs: Sequence[str] | None = None,
        **named: Any,
    ) -> "Job":  # fmt: skip
        """Submits a request as a durable job, which survives a crash of either side.

        Args:
            idempotency_key: Submitting twice under one key creates one job. None: a new key, so that only the client's own
                retries count as the same job.
            webhook: URL to notify when the job ends.
            ttl_s: How long the server keeps the job, in seconds.
            run_timeout_s: How long it may run, in seconds; `timeout_s` limits the submission.
        """
        options = Options(version, timeout_s, priority, False, request_id, outputs)
        job = JobOptions(idempotency_key, webhook, ttl_s, run_timeout_s)
        return Job(
            self._runner, self._jobs, self._runner.run(self._jobs.submit(model, merge_inputs(inputs, named), options, job))
        )

    def job(self, job_id: str) -> "Job":
        """Returns a job by its id."""
        return Job(self._runner, self._jobs, self._runner.run(self._jobs.get(job_id)))

    def jobs(self, *, state: JobState | None = None, max_jobs: int = 1000) -> list["Job"]:
        """Returns the caller's jobs, all or only those in one state."""
        return [Job(self._runner, self._jobs, record) for record in self._runner.run(self._jobs.jobs(state, max_jobs))]

    def models(self) -> list[str]:
        """Returns the names of all models."""
        return self._runner.run(self._operations.models())

    def metadata(self, model: str, *, version: str | None = None) -> ModelMetadata:
        """Returns a model's current inputs and outputs."""
        return self._runner.run(self._operations.metadata(model, version))

    def config(self, model: str, *, version: str | None = None) -> dict[str, Any]:
        """Returns a model's configuration, in Triton's form."""
        return self._runner.run(self._operations.get_object(model_path(model, version, MODEL_CONFIG)))

    def statistics(self, model: str | None = None, *, version: str | None = None) -> dict[str, Any]:
        """Returns how many times and how long a model, or every model, has run; in Triton's form."""
        return self._runner.run(self._operations.get_object(statistics_path(model, version)))

    def status(self) -> dict[str, Any]:
        """Returns the server's current state: its processes, each program's replicas, queue and cost, and its guesses."""
        return self._runner.run(self._operations.get_object(STATUS))

    def live(self) -> dict[str, Any]:
        """Returns what the server is doing now: rates and latencies of workflows; replicas, queues and batches of programs."""
        return self._runner.run(self._operations.get_object(LIVE_NOW))

    def scaling(self) -> dict[str, Any]:
        """Returns how many replicas each program has and should have, and why."""
        return self._runner.run(self._operations.get_object(SCALING))

    def scale(self, program: str, *, num_warm: int | None = None, num_parked: int | None = None) -> dict[str, Any]:
        """Sets how many replicas of a program stay warm and parked; None leaves a number to the server's forecast again."""
        return self._runner.run(self._operations.scale(program, num_warm, num_parked))

    def deployments(self) -> dict[str, Any]:
        """Returns the versions of each workflow, by its name. Like the next three methods, it needs a key that may manage."""
        return self._runner.run(self._operations.get_object(DEPLOYMENTS))

    def deploy(
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
        """Loads a version of a workflow into the server, and returns its versions once requests get it.

        Args:
            target: Such as ``/app/flow.py:classify``, as the server finds it.
            version: Its name; by default the next whole number.
            group: The group of orchestrators that loads it, if a gateway has several.
            share: Its part of the requests that name no version. With all of them (1), it becomes the default. None: all; none if
                `shadow` is given.
            shadow: The part of the default's requests that are copied to it; nobody sees the answers to copies.
            sticky: The header whose value picks a request's version, such as ``x-session-id``, or ``key`` for the client's API
                key; empty: versions are drawn at random; None: as before.
            rules: Rules by which it is promoted or rolled back, as the file for ``dyorc deploy --judge`` has them.
            fresh: Whether it shares no program with other versions.
            allow_incompatible: Whether its inputs and outputs may differ from the default's.
            after_replay: So many of the last requests of its workflow that the server has recorded, and versions that are served
                now have answered, are replayed on it first; 0: none.
            max_differences: Of these, so many may be different. With more, it is not loaded. Needs `after_replay`.

        Raises:
            DeployError: If it cannot be loaded; nothing has changed.
            ConflictError: If the version exists with other code, or does not fit the other versions.
        """
        order = {"target": target, "version": version, "group": group, "share": share, "shadow": shadow, "sticky": sticky}
        order |= {"rules": None if rules is None else dict(rules)}
        order |= {"is_fresh": fresh, "is_incompatible_allowed": allow_incompatible}
        order |= {"after_replay": after_replay, "max_differences": max_differences}
        return self._runner.run(self._operations.change(DEPLOYMENTS, order))

    def undeploy(self, model: str, version: str | None = None) -> dict[str, Any]:
        """Takes a version, or without one the whole model, out of service. Requests that have begun are still answered."""
        return self._runner.run(self._operations.change(unload_path(model), {"parameters": {"version": version}}))

    def rollback(self, model: str) -> dict[str, Any]:
        """Undoes the last change of a model's versions. Call it again to undo the one before."""
        return self._runner.run(self._operations.change(rollback_path(model), {}))

    def requests(
        self,
        *,
        workflow: str | None = None,
        order: Literal["latest", "slowest"] = "latest",
        outcome: Literal["all", "ok", "failed"] = "all",
        limit: int = 50,
    ) -> list[dict[str, Any]]:
        """Returns summaries of requests that have ended: how long each took, and what took most of that time."""
        return self._runner.run(self._operations.requests(workflow, order, outcome, limit))

    def request(self, request_id: str) -> dict[str, Any]:
        """Returns the record of a request that has ended: where its time went, its calls, batches and guesses."""
        return self._runner.run(self._operations.get_object(request_path(request_id)))

    def tail(self, workflow: str | None = None, *, share: float = 0.01, seconds: float | None = None) -> dict[str, Any]:
        """Returns where the time of the slowest requests went, beside typical ones, by the stages of their critical paths.

        Args:
            workflow: Only requests of this one.
            share: How many of the requests count as the slowest, as a fraction: above 0, at most 0.5.
            seconds: Only requests that ended in the last seconds; None: as far as the server remembers.

        Raises:
            InvalidInputError: If a value is out of its range.
        """
        return self._runner.run(self._operations.tail(workflow, share, seconds))

    def trace(self, seconds: float = 5.0) -> dict[str, Any]:
        """Returns the requests that ended in the last seconds, and their batches, in Chrome's trace format."""
        return self._runner.run(self._operations.get_object(f"{TRACE}?seconds={seconds:g}"))

    def is_live(self) -> bool:
        """Returns whether the server answers."""
        return self._runner.run(self._operations.is_healthy(LIVE))

    def is_ready(self, model: str | None = None) -> bool:
        """Returns whether a model, or every model, can run now."""
        return self._runner.run(self._operations.is_healthy(health_path(model)))

    def why_not_ready(self, model: str | None = None) -> str:
        """Returns why a model, or any model, cannot run now; empty if it can."""
        return self._runner.run(self._operations.why_unhealthy(health_path(model)))

    def wait_until_ready(self, timeout_s: float | None = None, *, model: str | None = None) -> None:
        """Returns once a model, or every model, can run. `DeadlineError`, with the reason, if that takes too long."""
        self._runner.run(self._operations.wait_until_ready(health_path(model), timeout_s))


class Job:
    """A durable job, as of its last refresh."""

    def __init__(self, runner: FlowRunner, jobs: JobOperations, record: JobRecord) -> None:
        self._runner = runner
        self._jobs = jobs
        self.record = record

    def __reduce__(self) -> NoReturn:
        raise TypeError("Job cannot be pickled or copied: it holds connections; pass on its `id`, and ask a client for `job(id)`")

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def state(self) -> JobState:
        return self.record.state

    def refresh(self) -> Self:
        """Refreshes its state."""
        return self._update(self._jobs.get(self.id))

    def wait(self, timeout_s: float | None = None) -> Self:
        """Returns once it has ended, in any state. `DeadlineError` if that takes longer; the job goes on then."""
        return self._update(self._jobs.wait(self.id, timeout_s))

    def result(self, timeout_s: float | None = None) -> Any:
        """Waits for its end, and returns what `infer` would have returned. Raises the error with which it failed."""
        return self.answer(timeout_s).value

    def answer(self, timeout_s: float | None = None) -> Answer:
        """Returns what `result` returns, with everything the server says."""
        return self._runner.run(self._jobs.result(self.id, timeout_s))

    def cancel(self) -> Self:
        """Ends it."""
        return self._update(self._jobs.cancel(self.id))

    def delete(self) -> None:
        """Cancels it if it has not ended, and deletes it from the server."""
        self._runner.run(self._jobs.delete(self.id))

    def _update(self, flow: Flow[JobRecord]) -> Self:
        self.record = self._runner.run(flow)
        return self
