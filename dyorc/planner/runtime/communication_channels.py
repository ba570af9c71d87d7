"""Where a rank's communication runs: at once, or in order during computation.

A channel runs communication in the order in which it was submitted. All ranks submit in the plan's order, and what is earlier
in it never waits for what is later, so no two of them wait for each other, over however many channels. The results are the same
either way, since each communication adds in its own order.
"""

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import torch

from dyorc.planner.runtime.region_moves import Key

Made = Mapping[Key, torch.Tensor]


class CommunicationChannel(Protocol):
    """Runs communication."""

    def submit(self, communicate: Callable[[], Made]) -> "Future[Made]":
        """Runs it after all that was submitted before. Call `arrive` before reading the result."""
        ...

    def arrive(self, done: "Future[Made]") -> Made:
        """Returns what was made; waits for it."""
        ...

    def close(self) -> None:
        """Ends the channel. What was submitted has been waited for."""
        ...


class RankChannels:
    """A rank's channels: one for each rank that it alone sends to or gets from, and one for all else. Made when they are needed.

    So what goes to one rank does not wait for what goes to another, as it would not on a network.
    """

    def __init__(self, make: Callable[[], CommunicationChannel]) -> None:
        self._make = make
        self._channels: dict[tuple[int, int] | None, CommunicationChannel] = {}

    def of(self, peer: tuple[int, int] | None) -> CommunicationChannel:
        """Returns the channel of a pair of ranks, the one that sends first; or of all else."""
        if peer not in self._channels:
            self._channels[peer] = self._make()
        return self._channels[peer]

    def submit(self, peer: tuple[int, int] | None, communicate: Callable[[], Made]) -> "Future[Made]":
        """Runs it after all that was submitted for these before."""
        return self.of(peer).submit(communicate)

    def arrive(self, done: "Future[Made]") -> Made:
        """Returns what was made; waits for it."""
        return self.of(None).arrive(done)

    def finish(self) -> None:
        """Waits for all that was submitted, and raises what any of it raised. What was made is not held for this: it may lie
        where the next message is to come.
        """
        for channel in self._channels.values():
            channel.arrive(channel.submit(dict))

    def close(self) -> None:
        """Ends the channels. What was submitted has been waited for."""
        for channel in self._channels.values():
            channel.close()


class InlineChannel:
    """Communicates at once: computation waits."""

    def submit(self, communicate: Callable[[], Made]) -> "Future[Made]":
        """Runs it."""
        done: Future[Made] = Future()
        done.set_result(communicate())
        return done

    def arrive(self, done: "Future[Made]") -> Made:
        """Returns what was made."""
        return done.result()

    def close(self) -> None:
        """There is nothing to end."""


class ThreadChannel:
    """Communicates in a thread, on its own stream where the device has streams, while computation goes on."""

    def __init__(self, device: torch.device) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dyorc-channel")
        self._failed: BaseException | None = None
        self._device = device
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None

    def submit(self, communicate: Callable[[], Made]) -> "Future[Made]":
        """Runs it in the thread."""
        ready = torch.cuda.current_stream(self._device).record_event() if self._stream else None
        return self._thread.submit(self._run, communicate, ready)

    def arrive(self, done: "Future[Made]") -> Made:
        """Waits for it."""
        made = done.result()
        if self._stream:
            for tensor in made.values():
                tensor.record_stream(torch.cuda.current_stream(self._device))
        return made

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(cancel_futures=True)

    def _run(self, communicate: Callable[[], Made], ready: Any) -> Made:
        if self._failed:  # the others do not come to a later meeting either
            raise self._failed
        try:
            with torch.cuda.stream(self._stream) if self._stream else contextlib.nullcontext():
                if ready:
                    self._stream.wait_event(ready)
                made = communicate()
            if self._stream:
                self._stream.synchronize()  # what it reads is held until here
            return made
        except BaseException as error:
            self._failed = error
            raise
