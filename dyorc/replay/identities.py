"""What makes two calls of two versions the same: their program and equal arguments.

A tensor whose bytes a history holds is known by their digest. Any other is known by where it comes from: an input by its name,
a result by its call, and that by its program and arguments, and so on.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dyorc.core.arrays import Array, apply_views
from dyorc.telemetry.histories.history import (
    CONSTANT,
    INPUT,
    WHOLE,
    HistoryCall,
    KeptTensor,
    ReadStream,
    RequestHistory,
    TensorSource,
    digest_of,
    index_of_json,
)

_NOTHING = KeptTensor("", ())


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """What a call has read of a stream that was passed to it.

    Attributes:
        parts: The identities of the tensors of each part.
        is_ended, error: See `ReadStream`.
    """

    parts: Sequence[tuple[str, ...]]
    is_ended: bool = False
    error: tuple[str, ...] = ()

    def is_part_of(self, other: "StreamIdentity") -> bool:
        """Returns whether the other stream begins with this one and, if this one is ended, ends as it does."""
        num_parts = len(self.parts)
        if self.is_ended and not (other.is_ended and len(other.parts) == num_parts and other.error[:1] == self.error[:1]):
            return False
        return list(other.parts[:num_parts]) == list(self.parts)


class Identities:
    """The identities of the tensors and calls of one history: texts that are equal for equal ones, also in other histories.

    Args:
        recorded: Those of the history that was replayed, if this one is of its replay. Whether a result is known by its bytes
            depends on that history: here it may be missing, since the call was not needed any longer, or be there, since the
            workflow had it made again. How far a call has read a stream does, too.
    """

    def __init__(self, history: RequestHistory, recorded: "Identities | None" = None) -> None:
        self._history = history
        self._recorded = recorded
        self._names = list(history.inputs)
        self._bases: dict[int, str] = {}
        self._calls: dict[int, str] = {}
        self._streams: dict[int, Sequence[StreamIdentity]] = {}
        self._by_identity: dict[str, list[HistoryCall]] | None = None
        self._readers: dict[str, list[int]] | None = None

    def of(self, source: TensorSource) -> str:
        """Returns the identity of a tensor."""
        kept = self._kept(source)
        if self._recorded is not None and source.call >= 0:
            kept = self._recorded.as_known(self.of_call(source.call), source.field, source.part, kept)
        array = _seen_through(kept, source)
        if array is not None:
            return digest_of(array)
        if source.call == INPUT:
            return of_input(self._names[source.field], source.views)
        if source.call == CONSTANT:
            return f"{kept.digest}{shown_views(source.views)}"
        return of_result(self.of_call(source.call), source.field, source.views, source.part)

    def of_call(self, number: int) -> str:
        """Returns the identity of a call, by its number."""
        identity = self._calls.get(number)
        if identity is None:
            identity = self.of_call_without_streams(number)
            if streams := self.streams_of(number):
                like = None if self._recorded is None else self._recorded.reader_like(identity, streams)
                identity = like or of_reader(identity, streams)
            self._calls[number] = identity
        return identity

    def of_call_without_streams(self, number: int) -> str:
        """Returns what is equal for all calls that differ in nothing but the streams that they read."""
        base = self._bases.get(number)
        if base is None:
            call = self._history.calls[number]
            base = self._bases[number] = of_call(call.program, call.statics, [self.of(source) for source in call.arguments])
        return base

    def streams_of(self, number: int) -> Sequence[StreamIdentity]:
        """Returns what a call has read of its streams, by its number."""
        streams = self._streams.get(number)
        if streams is None:
            streams = self._streams[number] = [
                StreamIdentity([self._part(part) for part in stream.parts], stream.is_ended, stream.error)
                for stream in self._history.calls[number].streams
            ]
        return streams

    def _part(self, sources: Iterable[TensorSource]) -> tuple[str, ...]:
        return tuple([self.of(source) for source in sources])

    def reader_like(self, base: str, streams: Sequence[StreamIdentity]) -> str | None:
        """Returns the identity of the call here that has read the most of these streams from their start; None if none has.

        Args:
            base: As `of_call_without_streams` has it.
        """
        alike = [number for number in self._readers_alike(base) if _are_parts_of(self.streams_of(number), streams)]
        if not alike:
            return None
        return self.of_call(max(alike, key=lambda number: strictness(self._history.calls[number], self.streams_of(number))))

    def ended_like(self, number: int) -> HistoryCall | None:
        """Returns the first call that has ended, if possible with a result, and is equal to a call here as far as that came;
        None if there is none."""
        alike = list(self._alike(self.of_call(number)))
        if streams := self.streams_of(number):
            whole = [self._whole(stream) for stream in self._history.calls[number].streams]
            for other in self._readers_alike(self.of_call_without_streams(number)):
                read = self.streams_of(other)
                if _are_parts_of(streams, read) and all(b is None or a.is_part_of(b) for a, b in zip(read, whole, strict=True)):
                    alike.append(self._history.calls[other])
        return next(filter(is_over, sorted(alike, key=lambda call: call.outputs is None)), None)

    def _whole(self, stream: ReadStream) -> StreamIdentity | None:
        """Returns all that is known of a stream which a call has begun to read; None if no program yields it."""
        first = next((source for part in stream.parts[:1] for source in part), None)
        if first is None or first.part != 0:
            return None
        made = self._history.calls[first.call]
        parts = [
            self._part(TensorSource(first.call, field, (), index) for field in range(len(part)))
            for index, part in enumerate(made.parts or ())
        ]
        return StreamIdentity(parts, made.outputs is not None)

    def _readers_alike(self, base: str) -> Sequence[int]:
        """Returns the numbers of the calls that differ in nothing but the streams that they read."""
        if self._readers is None:
            self._readers = {}
            for number, call in enumerate(self._history.calls):
                if call.streams:
                    self._readers.setdefault(self.of_call_without_streams(number), []).append(number)
        return self._readers.get(base, ())

    def of_nested(self, number: int) -> str:
        """Returns what is equal for runs of a workflow with equal arguments, by the number of the run."""
        run = self._history.nested[number]
        return of_call(run.workflow, run.statics, [self.of(source) for source in run.arguments])

    def array(self, source: TensorSource) -> Array | None:
        """Returns a tensor; None if its bytes are not in the history."""
        return _seen_through(self._kept(source), source)

    def as_known(self, call: str, field: int, part: int, tensor: KeptTensor) -> KeptTensor:
        """Returns an output of a call as it is known here, if the call is: that may be with fewer bytes, or none.

        Args:
            call: Its identity.
            part: See `TensorSource`.
            tensor: As another history of it has it.
        """
        alike = self._alike(call)
        if not alike:
            return tensor
        theirs = next(filter(None, [_output(each, field, part) for each in alike]), _NOTHING)
        return tensor if theirs.data is not None and tensor is not _NOTHING else theirs

    def _alike(self, call: str) -> Sequence[HistoryCall]:
        """Returns the calls with this identity."""
        if self._by_identity is None:
            self._by_identity = {}
            for number, each in enumerate(self._history.calls):
                self._by_identity.setdefault(self.of_call(number), []).append(each)
        return self._by_identity.get(call, ())

    def _kept(self, source: TensorSource) -> KeptTensor:
        if source.call == INPUT:
            return self._history.inputs[self._names[source.field]]
        if source.call == CONSTANT:
            return self._history.constants[source.field]
        return _output(self._history.calls[source.call], source.field, source.part) or _NOTHING


def complete(history: RequestHistory) -> None:
    """Gives calls that did not end, since they were not needed any longer, the end of an equal call."""
    while any(_lacks_result(call) for call in history.calls):
        identities, is_changed = Identities(history), False
        for number, call in enumerate(history.calls):
            if _lacks_result(call):
                ended = identities.ended_like(number)
                if ended is not None:
                    call.outputs, call.error, call.parts, call.streams = ended.outputs, ended.error, ended.parts, ended.streams
                    is_changed = True
        if not is_changed:
            return


def _are_parts_of(streams: Sequence[StreamIdentity], others: Sequence[StreamIdentity]) -> bool:
    """Returns whether the others begin with these streams, one by one."""
    return len(streams) == len(others) and all(mine.is_part_of(theirs) for mine, theirs in zip(streams, others, strict=True))


def _output(call: HistoryCall, field: int, part: int) -> KeptTensor | None:
    """Returns an output of a call, or of a part that it has yielded; None if it is not there."""
    outputs = call.outputs if part == WHOLE else call.parts[part] if call.parts is not None and part < len(call.parts) else None
    return outputs[field] if outputs is not None and field < len(outputs) else None


def is_over(call: HistoryCall) -> bool:
    """Returns whether a call has ended: with a result, or an error."""
    return call.outputs is not None or bool(call.error)


def strictness(call: HistoryCall, streams: Sequence[StreamIdentity]) -> tuple[bool, int, int]:
    """Returns what is the greater the more is known of a call that reads streams: whether it has ended, how much it has read."""
    return is_over(call), sum(len(each.parts) for each in streams), sum(each.is_ended for each in streams)


def _lacks_result(call: HistoryCall) -> bool:
    return not is_over(call) and not call.is_effect


def _seen_through(kept: KeptTensor, source: TensorSource) -> Array | None:
    """Returns a tensor through the views of a source; None without its bytes."""
    array = kept.array()
    if array is None or not source.views:
        return array
    return apply_views(array, [index_of_json(view) for view in source.views])


def of_call(program: str, statics: str, arguments: Sequence[str]) -> str:
    """Returns the identity of a call.

    Args:
        statics: The digest of its static parameters.
        arguments: The identities of its tensors.
    """
    text = " ".join([program, statics, *arguments])
    return f"{program} {hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def base_of(reader: str) -> str:
    """Returns what is equal for calls that differ in nothing but the streams that they read.

    Args:
        reader: The identity of one.
    """
    return reader.rpartition(" ")[0]


def of_reader(base: str, streams: Sequence[StreamIdentity]) -> str:
    """Returns the identity of a call that reads streams.

    Args:
        base: What is equal for calls that differ in nothing but these.
    """
    text = "; ".join([f"{list(stream.parts)} {stream.is_ended} {stream.error[:1]}" for stream in streams])
    return f"{base} {hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def of_input(name: str, views: Sequence[Any]) -> str:
    """Returns the identity of an input without bytes, seen through views as JSON."""
    return f"input {name}{shown_views(views)}"


def of_result(call: str, field: int, views: Sequence[Any], part: int = WHOLE) -> str:
    """Returns the identity of an output without bytes of a call, or of a part that it has yielded."""
    return f"{call}.{field if part == WHOLE else f'{part}.{field}'}{shown_views(views)}"


def shown_views(views: Sequence[Any]) -> str:
    """Returns views as part of an identity; empty for views of the whole, as ``x[:]`` and ``x[..., :]``.

    The shape is not always known, so ``x[0:3]`` of three rows counts as a part.

    Args:
        views: As JSON.
    """
    parts = [part for part in map(_without_wholes, views) if part]
    return str(parts) if parts else ""


def _without_wholes(view: list[Any]) -> list[Any]:
    """Returns a view without the dimensions at its end that it takes whole."""
    end = len(view)
    while end and (view[end - 1] == "..." or _is_whole(view[end - 1])):
        end -= 1
    return view if "..." in view[:end] else view[:end]  # ``x[..., 0, :]`` means the last dimension but one


def _is_whole(item: Any) -> bool:
    return isinstance(item, list) and item[0] in (None, 0) and item[1] is None and item[2] in (None, 1)
