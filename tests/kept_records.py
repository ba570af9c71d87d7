"""A recorder that keeps the records of all requests, in place of the server's own."""

from collections.abc import Callable

from dyorc.telemetry.record import RequestRecord


class KeptRecords:
    """Wants every request.

    Attributes:
        records: Of requests that have ended or were refused, in this order.
    """

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []

    def wants(self) -> bool:
        return True

    def ended(self, record: RequestRecord) -> None:
        self.records.append(record)

    def refused(self, outcome: str, record: Callable[[], RequestRecord]) -> None:
        self.records.append(record())
