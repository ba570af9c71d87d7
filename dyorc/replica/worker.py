"""The replica's worker: dials in, announces its program, and runs batch after batch.

One thread does all of it. The next batch arrives meanwhile in ZeroMQ's own thread, so transfer hides behind compute.
"""

import os
import threading
import time
from collections.abc import Callable

from dyorc.authoring.program import Program
from dyorc.config import LinkConfig
from dyorc.errors import ProgramLoadError, TransportError
from dyorc.replica.executor import BatchError, Executor
from dyorc.transport.codec import Frame
from dyorc.transport.messages import (
    BatchFailure,
    BatchReply,
    BatchRequest,
    Hello,
    LoadFailure,
    Loading,
    decode,
    decode_columns,
    encode,
    encode_columns,
)
from dyorc.transport.zmq_link import DealerLink


class Worker:
    """Hosts one program.

    Args:
        find: Finds the program, by importing the user's module.
        name: The program's name, known before it is found.
        address: Where the orchestrator listens.
        replica_id: Unique name of this copy.
        node: Name of the machine it runs on.
    """

    def __init__(
        self, find: Callable[[], Program], name: str, address: str, replica_id: str, node: str, config: LinkConfig
    ) -> None:
        self._find = find
        self._name = name
        self._address = address
        self._replica_id = replica_id
        self._node = node
        self._config = config
        self._thread = threading.Thread(target=self._main, name=f"dyorc-{name}", daemon=True)
        self._loaded = threading.Event()
        self._stopping = threading.Event()
        self._busy_since_s: float | None = None
        self._error: Exception | None = None
        self._timeout_s = 0.0

    def start(self) -> None:
        """Starts the thread and waits until the program is loaded.

        Raises:
            ProgramLoadError: If it cannot be; the orchestrator has been told.
        """
        self._thread.start()
        self._loaded.wait()
        if self._error is not None:
            raise self._error

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the thread after the batch that runs."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def check(self) -> None:
        """Raises RuntimeError if the thread has died, or a batch takes longer than its program may."""
        if not self._thread.is_alive():
            raise RuntimeError(f"the worker of program {self._name!r} has died: {self._error!r}")
        since_s = self._busy_since_s
        if since_s is not None and time.monotonic() - since_s > self._timeout_s:
            raise RuntimeError(f"program {self._name!r} has been running one batch for more than {self._timeout_s} s")

    def _main(self) -> None:
        link = DealerLink(self._address, self._config, self._config.announce_interval_s)
        try:
            link.send([encode(Loading(self._replica_id, self._name))])
            executor = self._load(link)
            self._loaded.set()
            hello = encode(Hello(self._replica_id, self._name, self._node, os.getpid()))
            link.send([hello])
            while not self._stopping.is_set():
                frames = link.receive()
                if frames is None:
                    link.send([hello])
                else:
                    link.send(self._answer(executor, frames))
        except Exception as error:
            self._error = error
        finally:
            self._loaded.set()
            link.close()

    def _load(self, link: DealerLink) -> Executor:
        try:
            program = self._find()
            self._timeout_s = program.options.execution_timeout_s
            return Executor.load(program)
        except Exception as error:
            failure = BatchError.of(error)
            if isinstance(error, ProgramLoadError):
                failure = BatchError(error.error_type, str(error.__cause__), error.remote_traceback)
            link.send([encode(LoadFailure(self._name, failure.error_type, failure.message, failure.traceback))])
            raise

    def _answer(self, executor: Executor, frames: list[Frame]) -> list[Frame]:
        """Runs the batch of a message; gives the message that answers it."""
        message = decode(frames[0])
        if not isinstance(message, BatchRequest):
            raise TransportError(f"a replica got {type(message).__name__}, expected BatchRequest")
        self._busy_since_s = time.monotonic()
        try:
            result = executor.run(decode_columns(message.columns, frames[1:]), message.statics)
            if not isinstance(result, BatchError):
                columns, parts = encode_columns(result.outputs)
                return [encode(BatchReply(self._replica_id, message.batch_id, columns, result.execute_s)), *parts]
        except TransportError as error:
            result = BatchError.of(error)
        finally:
            self._busy_since_s = None
        return [encode(BatchFailure(self._replica_id, message.batch_id, result.error_type, result.message, result.traceback))]
