"""The replica's second thread, used with several nodes: fetches tensors ahead, as the orchestrator orders."""

import threading
from typing import Self

import structlog

from dyorc.errors import TransportError
from dyorc.replica.assignment import Uplink
from dyorc.replica.leader_link import LeaderTracker
from dyorc.system.log_throttle import LogThrottle
from dyorc.transport.messages import Forget, StageSpans, StagingHello, UnstageTensors, decode, encode
from dyorc.transport.staging import StagingArea

_log = structlog.get_logger("dyorc.replica")

_IDLE_S = 0.2
"""The longest delay until it notices that it should stop."""
_NUM_IDLE = 5
"""After this many receives in a row without a message it announces itself again: the orchestrator may be a new one."""


class Stager:
    """Runs while entered.

    Args:
        leader: The orchestrator that orders.
        staging: The area that it fills.
    """

    def __init__(self, replica_id: str, uplink: Uplink, leader: LeaderTracker, staging: StagingArea) -> None:
        self._replica_id = replica_id
        self._uplink = uplink
        self._leader = leader
        self._staging = staging
        self._refused = LogThrottle(_log, "message_refused")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._main, name="dyorc-stager", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _main(self) -> None:
        link = self._uplink.dial(_IDLE_S, address := self._leader.address)
        try:
            num_idle = 0
            link.send([encode(StagingHello(self._replica_id))])
            while not self._stopping.is_set():
                if self._leader.address != address:
                    link.close(0)
                    link = self._uplink.dial(_IDLE_S, address := self._leader.address)
                    link.send([encode(StagingHello(self._replica_id))])
                is_busy = self._staging.fetch_next()
                frames = link.receive(is_waiting=not is_busy)  # between two tensors: the next may no longer be needed
                if frames is not None:
                    self._handle(frames[0])
                num_idle = 0 if is_busy or frames is not None else num_idle + 1
                if num_idle == _NUM_IDLE:
                    num_idle = 0
                    link.send([encode(StagingHello(self._replica_id))])
        finally:
            link.close()

    def _handle(self, header: bytes | bytearray | memoryview) -> None:
        try:
            match decode(header):
                case StageSpans(holder=holder, spans=spans):
                    self._staging.add(holder, spans)
                case UnstageTensors(blocks=blocks):
                    self._staging.drop(blocks)
                case Forget(holder_id=holder_id):
                    self._staging.forget(holder_id)
                case other:
                    raise TransportError(f"a stager got {type(other).__name__}, which is not for it")
        except TransportError as error:
            self._refused.report(error=str(error))
