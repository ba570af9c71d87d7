"""Every error that DyOrc raises, as one tree.

The class says what happened; the attributes say what to do about it:

    DyOrcError
    |- DefinitionError            a program or workflow is declared wrongly; raised where it is declared
    |  `- ModuleImportError          the module that holds it raised when it was imported
    |- ProgramCaptureError     a module cannot be captured as a tensor program that can be planned
    |- PlanError               a plan, or a file of a plan or cluster, is wrong or does not fit
    |  `- CheckpointError         a checkpoint is not whole, or of another model
    |- PlanRunError            a rank that ran a plan raised, died or did not go on; all others have ended, too
    |- ConfigurationError         a setting, or a file that it names, cannot be used; raised when the server starts
    |  |- MissingLibraryError        ... because a library is not installed (also an ImportError)
    |  `- MissingDeviceError         ... because a device is not there
    |- LeadLostError              another orchestrator leads the group now; ends the process
    |- LaunchError                Ray, which runs the programs, could not be started; raised when the server starts
    |- ClientError                the request is wrong, sending it again will not help
    |  |- InvalidInputError         a tensor or a parameter does not fit the model
    |  |  `- SizeLimitError           ... larger than the largest bucket that a program pads it to
    |  |- UnknownModelError         no workflow or program of that name
    |  |- PayloadTooLargeError      the body is larger than the server takes
    |  |- AuthenticationError       no API key, or an unknown one
    |  |- PermissionDeniedError     the key's tenant may not do this
    |  |- UnsupportedError          the server does not do this
    |  |- UnknownJobError           there is no such job
    |  |- ConflictError             it contradicts an earlier request
    |  |- DeployError               a version of a workflow cannot be loaded; what runs goes on
    |  |- UnknownRequestError       there is no record of a request
    |  |- UnknownRegionError        no shared memory of that name is registered
    |  `- ClientMemoryDisabledError  clients may not share memory with this server
    |- ClientMemoryError          memory that a client shares cannot be opened, or is too small for a result
    |- CapacityError              nothing is wrong, there is no room now; send again later
    |  |- TenantLimitError          ... for this tenant, which has used up its share
    |  |- OverloadedError           ... because the server is too busy to answer within the request's limit
    |  |- ServerStoppedError        ... because the server stopped before the answer came; it may have run
    |  |- StoreError                ... because the store of jobs cannot be used
    |  `- NotReadyError             ... because replicas are still starting
    |     `- ScaledToZeroError      ... because a person has taken all replicas of a program away (never sent again by itself)
    |- JobNotEndedError           the job has no result yet; ask again later
    |- DeadlineError              the request's time is up (also a TimeoutError)
    |- RequestCancelledError      the caller went away
    |- TransportError             bytes between processes were lost or malformed
    |  `- TensorLostError            the process that held a tensor is gone, or no longer has it
    |- ExecutionError             the request was accepted and could not be finished
    |  |- ProgramError              a program raised, or returned what it does not declare
    |  |  `- ProgramLoadError         ... while it was being loaded
    |  |- ReplicaLostError          its replica died again and again
    |  |- AnswerTooLargeError        its outputs are larger than the server sends
    |  |- EffectLostError           its replica died, and the call may not be repeated
    |  |- StreamDivergedError       its replica died, and run again it yielded other parts than before
    |  |- SuspectInputError         its replicas died, and probably because of it: it is not run again
    |  `- WorkflowError             the workflow's own code raised
    |     |- ForeignAwaitError        it awaited something that is not DyOrc's
    |     |- NondeterministicWorkflowError   run again, it asked for other calls
    |     |- NotDeployedError         it called a program that is not deployed
    |     `- WorkflowLimitError       it made more calls than a request may
    `- InternalError              a bug of ours
"""

import re
from types import TracebackType
from typing import Any, ClassVar

_ERRNO = re.compile(r"\[Errno -?\d+\] ")
_MAX_TEXT = 8192
"""Characters of a foreign exception's text that our errors quote."""
_MAX_OF_GROUP = 8
"""Exceptions of a group that are quoted."""


class DyOrcError(Exception):
    """The root of the tree.

    Cure:
        The class below it says more. Catch this one to catch all.

    Attributes:
        code: A stable word for programs that read errors.
        retryable: Whether the same request may succeed if it is sent again.
        retry_after_s: When to send it again, in seconds, if known.
        request_id: Of the request, if a server said so: it stands in the server's log and records, too.
        trace_id: Of the request's trace, if a server said so.
    """

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    retry_after_s: float | None = None
    request_id: str = ""
    trace_id: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Serves pickle and copy, which would otherwise call `__init__` with the text alone."""
        return _restore, (type(self), self.args, vars(self))


class DefinitionError(DyOrcError, TypeError):
    """A program or workflow is declared wrongly. Raised where it is declared, never by a request.

    Cure:
        Change the declaration as the text says; `dyorc run` tries it without a server.
    """

    code = "definition"


class ModuleImportError(DefinitionError):
    """The user's module raised when it was imported. The text says which, what it raised, and where.

    Cure:
        Run `python` on the file: it raises the same. The server needs the modules that your code imports.

    Attributes:
        user_traceback: Python's traceback without our own code. Never sent to clients.
    """

    code = "module_import"
    user_traceback: str = ""

    def __init__(self, message: str, user_traceback: str = "") -> None:
        super().__init__(message)
        self.user_traceback = user_traceback


class ProgramCaptureError(DyOrcError, TypeError):
    """A module cannot be captured as a tensor program that can be planned; says which operation or argument is to blame.

    Cure:
        Change or leave out the operation that the text names, or plan a part of the module.
    """

    code = "program_capture"


class CaptureWarning(UserWarning):
    """A module is captured, and the plan does less with it than people may expect; says what."""


class PlanError(DyOrcError, ValueError):
    """A plan, or a file of a plan or cluster, is wrong or does not fit; says which part, what was expected and what came.

    Cure:
        Make the plan again with `dyorc plan`, for this model and this cluster.
    """

    code = "plan"


class CheckpointError(PlanError):
    """A checkpoint is not whole, has changed, or is of another model; says which file or value.

    Cure:
        Write the checkpoint again, or give the model that it belongs to.
    """

    code = "checkpoint"


class PlanRunError(DyOrcError, RuntimeError):
    """A rank that ran a plan raised, died or did not go on. The other ranks have ended, too.

    Cure:
        Read that rank's text. If it died, look for memory that ran out; then run the plan again.

    Attributes:
        rank: The one to blame, if known.
        step: The step of the plan that it was at, if known.
    """

    code = "plan_run"
    rank: int | None = None
    step: int | None = None

    def __init__(self, message: str, *, rank: int | None = None, step: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank
        self.step = step


class ConfigurationError(DyOrcError, ValueError):
    """A setting, or a file that it names, cannot be used. Raised when a server starts, never by a request.

    Cure:
        `dyorc config check` names all such settings in a file, `dyorc config show` what is in force.
    """

    code = "configuration"


class MissingDeviceError(ConfigurationError):
    """A device that a program declares is not there. Requests for the program fail with `ProgramLoadError`, which names this.

    Cure:
        Declare a device that the process has. On Ray, a replica sees only those of its `ray_actor_options={"num_gpus": 1}`, and
        counts them from 0.
    """

    code = "missing_device"


class MissingLibraryError(ConfigurationError, ImportError):
    """A library is needed that `dyorc-core` does not bring along. The text has the command that installs it.

    Cure:
        Run the command that the text names, in the same environment.

    Attributes:
        name: The library's module.
    """

    code = "missing_library"

    def __init__(self, message: str, *, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class LeadLostError(DyOrcError):
    """Another orchestrator leads the group now. A process manager starts this process again, as a standby.

    Cure:
        None: the new leader serves. If it happens often, the store or this host is too slow for `LEADER_ELECTION`'s
        times.
    """

    code = "lead_lost"


class LaunchError(DyOrcError):
    """Ray, which runs the programs, could not be started. Raised when a server starts, never by a request.

    Cure:
        Read what Ray says; `dyorc doctor` checks memory, ports and versions. `--in-process` needs no Ray.
    """

    code = "launch"


class ClientError(DyOrcError):
    """The request is wrong. Sending it again will not help.

    Cure:
        Change the request as the text says.
    """

    code = "client"


class InvalidInputError(ClientError, ValueError):
    """A tensor or parameter does not fit the model. The text names it, what was expected and what came.

    Cure:
        Compare the request with the model's metadata: `GET /v2/models/NAME`, or `client.metadata(NAME)`.
    """

    code = "invalid_input"


class SizeLimitError(InvalidInputError):
    """A tensor is larger than the largest bucket that a program pads it to.

    Cure:
        Send a smaller tensor, or declare a larger bucket where the program pads.

    Attributes:
        input_at: Index of the program's input; 0 where only the text is known, as in clients.
    """

    code = "size_limit"
    input_at: int = 0

    def __init__(self, message: str, input_at: int = 0) -> None:
        super().__init__(message)
        self.input_at = input_at


class UnknownModelError(ClientError):
    """No workflow or program of that name is served.

    Cure:
        `GET /v2/repository/index`, or `client.models()`, lists what is served.
    """

    code = "unknown_model"


class PayloadTooLargeError(ClientError):
    """The request's body is larger than the server accepts.

    Cure:
        Send less at once, or raise `GATEWAY__MAX_REQUEST_BYTES`.
    """

    code = "payload_too_large"


class AuthenticationError(ClientError):
    """The request carries no API key, or an unknown one.

    Cure:
        Send `Authorization: Bearer KEY`; `dyorc keys` makes and lists keys.
    """

    code = "unauthenticated"


class PermissionDeniedError(ClientError):
    """The key's tenant may not do this.

    Cure:
        Use a key of a tenant that may, or have the operator allow it.
    """

    code = "permission_denied"


class UnsupportedError(ClientError):
    """The server, or the model, does not do this.

    Cure:
        Use what the text names instead; the metadata lists the extensions that a server speaks.
    """

    code = "unsupported"


class ConflictError(ClientError):
    """The request contradicts an earlier one.

    Cure:
        Choose another name or idempotency key, or look at what the earlier request made.
    """

    code = "conflict"


class DeployError(ClientError):
    """A version of a workflow cannot be served: its code, or one of its programs, cannot be loaded. What runs goes on.

    Cure:
        Mend the code as the text says and deploy again; clients noticed nothing.
    """

    code = "deploy"


class UnknownJobError(ClientError):
    """The tenant has no job of that id, or no longer has it.

    Cure:
        Check the id and the key. Results are kept for `JOBS__TTL_S`.
    """

    code = "unknown_job"


class UnknownRequestError(ClientError):
    """There is no record of a request: it has not ended, was not recorded, or has made room for later ones.

    Cure:
        Ask soon after the end of a request; `explain` in a request returns its record with the answer.
    """

    code = "unknown_request"


class ClientMemoryDisabledError(ClientError):
    """Clients may not share memory with this server.

    Cure:
        Start the server with `--allow-client-shm`, or send tensors in the request.
    """

    code = "client_memory_disabled"


class UnknownRegionError(ClientError):
    """No region of that name is registered.

    Cure:
        Register the region first, and again after a restart of the server.
    """

    code = "unknown_region"


class ClientMemoryError(DyOrcError):
    """A client's memory cannot be opened, or cannot hold a result.

    Cure:
        Create the shared memory before you register it, as large as you say, on the server's host.
    """

    code = "client_memory"


class CapacityError(DyOrcError):
    """There is no room for the request now: it was not accepted, or there was no memory for its programs' results.

    Cure:
        Send again after `Retry-After`; our client does. If it lasts: more replicas, or higher limits.
    """

    code = "capacity"
    retryable = True

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TenantLimitError(CapacityError):
    """The tenant has as much in flight as it may, or sends too fast.

    Cure:
        Send more slowly, or have the operator raise the tenant's limits.
    """

    code = "tenant_limit"


class OverloadedError(CapacityError):
    """The server is too busy to answer the request within its limit, so it did not begin.

    Cure:
        Send again after `Retry-After`, with a longer deadline, or add replicas.
    """

    code = "overloaded"


class ServerStoppedError(CapacityError):
    """The server has stopped, and the request was not answered in the time that it waits for that. The request may have run.

    Cure:
        Send again if it may run twice; our clients do if the model is repeatable. Else find out whether its effects have
        happened. A longer `gateway.drain_timeout_s` lets longer requests end.
    """

    code = "server_stopped"
    retryable = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.retry_after_s = None


class StoreError(CapacityError):
    """The store of jobs cannot be used now. The text says no more than whether it is full, because clients read it.

    Cure:
        Send again. The operator finds the reason in the server's log (`job_store_down`) and in `dyorc doctor`. If its disk is
        full, the operator has to free some of it: SQLite needs room to delete a job, too.

    Attributes:
        detail: Which store it is and what is wrong, for the log. Never sent to clients.
    """

    code = "store"
    detail: str = ""

    def __init__(self, detail: str, fullness: str = "") -> None:
        super().__init__("the job store cannot be used now" + (f": {fullness}" if fullness else ""))
        self.detail = detail


class NotReadyError(CapacityError):
    """Programs that are needed have no replica yet.

    Cure:
        Wait: `client.wait_until_ready()`, or `GET /v2/health/ready`. If it lasts, `dyorc status` says which program
        does not load.
    """

    code = "not_ready"


class ScaledToZeroError(NotReadyError):
    """A program that is needed has no replica, by order of a person, and gets none by itself.

    Cure:
        `dyorc scale PROGRAM 1`, or `dyorc scale PROGRAM --auto`.
    """

    code = "scaled_to_zero"
    retryable = False

    @classmethod
    def of(cls, program: str) -> "ScaledToZeroError":
        """Returns the error of requests that need a program."""
        return cls(
            f"program {program!r} is scaled to 0 replicas by hand; `dyorc scale {program} 1` gives it one, "
            f"`dyorc scale {program} --auto` leaves it to the server again"
        )


class JobNotEndedError(DyOrcError):
    """The job has no result yet, since it has not ended. Asking again later may help.

    Cure:
        Wait with `job.result()`, or `?wait_s=30`.
    """

    code = "job_not_ended"
    retryable = True
    retry_after_s = 1.0


class DeadlineError(DyOrcError, TimeoutError):
    """The request's deadline passed before it could be answered.

    Cure:
        Give more time, or see where it went: `dyorc explain`, or `/ui`.
    """

    code = "deadline"


class RequestCancelledError(DyOrcError):
    """The caller went away, or cancelled the request.

    Cure:
        None, if the client meant to. Otherwise look for a proxy or client with a shorter timeout.
    """

    code = "cancelled"


class TransportError(DyOrcError):
    """Bytes between processes were lost or malformed.

    Cure:
        Send again; our client does. If it lasts, check the address, the network, and the versions of both sides.
    """

    code = "transport"
    retryable = True


class TensorLostError(TransportError):
    """A tensor cannot be read from its holder, which is gone, cut off, or no longer has it.

    Cure:
        Send again. If it happens often, replicas die: `dyorc status` and the log say why.
    """

    code = "tensor_lost"


class ExecutionError(DyOrcError):
    """The request was accepted and could not be finished.

    Cure:
        The class below it says more.
    """

    code = "execution"


class ProgramError(ExecutionError):
    """A program raised, returned something that it does not declare, or was called with inputs that do not fit.

    Cure:
        Mend the program, or the workflow that called it, as the text says; `dyorc run` repeats it without a server.

    Attributes:
        program: The program's name.
        error_type: Name of the exception's class, as the program raised it.
        message: What the exception said.
        remote_traceback: Where it was raised, as text; it may come from another process. Never sent to clients.
    """

    code = "program"
    program: str = ""
    error_type: str = ""
    message: str = ""
    remote_traceback: str = ""

    def __init__(self, program: str, error_type: str, message: str, remote_traceback: str = "", text: str = "") -> None:
        """Args:
        text: All of its text, if the program has not run.
        """
        super().__init__(text or f"program {program!r} failed: {error_type}: {message}")
        self.program = program
        self.error_type = error_type
        self.message = message
        self.remote_traceback = remote_traceback


class ProgramLoadError(ProgramError):
    """A program could not be loaded, so it cannot run.

    Cure:
        Mend `__init__`: often a file of weights is missing or there is no memory for it.
    """

    code = "program_load"


class ReplicaLostError(ExecutionError):
    """Replicas died, or results on them were lost, more often than the call may be tried.

    Cure:
        Send again. Find out why replicas die: memory of the host or GPU, a crash of a library, a lost node.
    """

    code = "replica_lost"
    retryable = True


class AnswerTooLargeError(ExecutionError):
    """The outputs of the request, or one part of them, are larger than the server sends.

    Cure:
        Ask for fewer outputs, answer in parts, or raise `GATEWAY__MAX_ANSWER_BYTES`.
    """

    code = "answer_too_large"


class SuspectInputError(ExecutionError):
    """Replicas died while they ran this call and nothing else, or an equal one, one after the other. The next one would, too.

    Cure:
        Do not send the input again. Run the program on it outside of the server: it kills the process.
    """

    code = "suspect_input"


class EffectLostError(ExecutionError):
    """The replica that ran this call died. The program has an effect and is not declared idempotent, so it is not repeated.

    Cure:
        Find out whether the effect has happened; then send again. Declare the program `idempotent` if it may be
        repeated.
    """

    code = "effect_lost"


class StreamDivergedError(ExecutionError):
    """A program that yields had to start again, because its replica was lost, and yielded another part than the first time.

    Cure:
        Send again. Let the program yield the same for the same inputs, without clocks; one that samples takes a seed as an
        input. Do not declare it `pure=False` for that: then it is not started again, and the loss fails with `effect_lost`.
    """

    code = "stream_diverged"


class WorkflowError(ExecutionError):
    """The workflow's own code raised. The text carries the exception and the line.

    Cure:
        Mend the line that the text names; `dyorc run` repeats it without a server.
    """

    code = "workflow"


class ForeignAwaitError(WorkflowError):
    """A workflow awaited something that is not DyOrc's, for example ``asyncio.sleep``.

    Cure:
        Move clocks, I/O and waiting into a program; a workflow awaits only what programs and `dyorc` return.
    """

    code = "foreign_await"


class NondeterministicWorkflowError(WorkflowError):
    """Run again with the same results, the workflow asked for other calls than before.

    Cure:
        Move random numbers, clocks and global state out of the workflow, into programs.
    """

    code = "nondeterministic"


class NotDeployedError(WorkflowError):
    """A workflow called a program that is not deployed.

    Cure:
        Declare the program: `@dyorc.workflow(programs=[...])`.
    """

    code = "not_deployed"


class WorkflowLimitError(WorkflowError):
    """A request made more calls than ``max_calls_per_request``.

    Cure:
        Look for a loop that does not end, or raise `ENGINE__MAX_CALLS_PER_REQUEST`.
    """

    code = "workflow_limit"


class InternalError(DyOrcError):
    """A bug of DyOrc.

    Cure:
        Please report it, with the request's id and the server's log around it.
    """

    code = "internal"


def _restore(kind: type[DyOrcError], args: tuple[Any, ...], attributes: dict[str, Any]) -> DyOrcError:
    """Returns an error as it was pickled. Constructors are not called: some write the text anew."""
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(attributes)
    return error


_NAME = type.__dict__["__name__"]
_TRACEBACK = BaseException.__dict__["__traceback__"]
_MAX_TYPE = 200


def type_name(error: BaseException) -> str:
    """Returns the name of a foreign exception's type, bounded. Its metaclass is not asked, which might raise."""
    return bounded(str(_NAME.__get__(type(error))), _MAX_TYPE)


def traceback_of(error: BaseException) -> TracebackType | None:
    """Returns where a foreign exception came from. Its class is not asked, which might raise."""
    return _TRACEBACK.__get__(error)


def text_of(error: BaseException) -> str:
    """Returns a foreign exception's text, bounded, even if its ``__str__`` raises; of a group, also what is in it."""
    try:
        text = str(error)
        if isinstance(error, BaseExceptionGroup):
            inner: tuple[BaseException, ...] = error.exceptions
            text += ": " + "; ".join(f"{type_name(each)}: {text_of(each)}" for each in inner[:_MAX_OF_GROUP])
        return bounded(text)
    except BaseException as raised:
        return f"(it has no text: __str__ raised {type_name(raised)})"


def without_errno(text: str) -> str:
    """Returns an error's text without the numbers that Python puts before what the operating system says."""
    return _ERRNO.sub("", text)


def bounded(text: str, max_characters: int = _MAX_TEXT) -> str:
    """Returns the beginning of a long text and how much was cut, valid as UTF-8: file names may hold lone surrogates."""
    if len(text) > max_characters:
        text = f"{text[:max_characters]}... (cut: {max_characters} of {len(text)} characters)"
    return text.encode(errors="replace").decode()
