"""What a call fails with: its program's error; that of a stream that it reads, and how it came here; or the client's."""

from dyorc.engine.events import BatchFailed
from dyorc.engine.model.program_call import Call
from dyorc.errors import DyOrcError, InvalidInputError, ProgramError, text_of, type_name


def error_of(call: Call, event: BatchFailed) -> DyOrcError:
    """Returns the error of a call whose program raised.

    If it did not catch the error of a stream, it has only passed that on. If it raised another one, that may be a consequence.
    An input that it cannot read is the client's error if the request came with it.
    """
    name = call.callee.name
    if event.input_at >= 0 and not call.chain and call.is_from_client(event.input_at):
        return InvalidInputError(event.message)
    failed = _failed(call)
    for stream, source in failed:
        if event.error_type == type_name(source) and event.message == text_of(source):
            return continued(source, _passed_on(call, stream))
    text = "".join([_beside(stream, source) for stream, source in failed[:1]])
    return ProgramError(name, event.error_type, f"{event.message}{text}", event.traceback)


def raised_by(call: Call, error: DyOrcError) -> tuple[str, str]:
    """Undoes `error_of`: returns the type and the text of what the program raised. Without the type, an input of the request
    could not be read."""
    failed = _failed(call)
    for stream, source in failed:
        if str(error) == f"{source}{_passed_on(call, stream)}":
            return type_name(source), text_of(source)
    if not isinstance(error, ProgramError):
        return "", str(error)
    text = "".join([_beside(stream, source) for stream, source in failed[:1]])
    return error.error_type, error.message.removesuffix(text)


def _failed(call: Call) -> list[tuple[str, DyOrcError]]:
    """Returns the streams of a call that have failed, and why."""
    return [(call.callee.signature.streams[feed.number].name, feed.error) for feed in call.feeds if feed.error is not None]


def _passed_on(call: Call, stream: str) -> str:
    return f"; it reached program {call.callee.name!r} through its stream {stream!r}"


def _beside(stream: str, source: DyOrcError) -> str:
    return f" (its stream {stream!r} had failed: {source})"


def continued(error: DyOrcError, addition: str) -> DyOrcError:
    """Returns an error like another one, with a longer text. The constructors of some classes would write that anew."""
    kind = type(error)
    continued = kind.__new__(kind, f"{error}{addition}")
    vars(continued).update(vars(error))
    if isinstance(continued, ProgramError):
        continued.message += addition
    return continued
