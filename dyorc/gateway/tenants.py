"""Who sends requests, and what that is worth."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One party that shares the server with others; it has one or more API keys.

    Attributes:
        name: What logs and queues know it by.
        weight: Its share of every queue, beside the weights of the others that wait there.
        max_requests: Requests in flight; None: only the server's own limit counts. So with the next two.
        max_bytes: Bytes of requests in flight.
        max_requests_per_s: Requests per second, over the last second.
        models: The models that it may use; None stands for all.
    """

    name: str
    weight: float = 1.0
    max_requests: int | None = None
    max_bytes: int | None = None
    max_requests_per_s: float | None = None
    models: frozenset[str] | None = None


ANONYMOUS = Tenant(name="")
"""Everybody, where no keys are asked for."""
