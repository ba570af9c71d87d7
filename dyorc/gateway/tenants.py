"""Who sends requests, and what they may do."""

from dataclasses import dataclass

from dyorc.errors import PermissionDeniedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One party that shares the server with others; it has one or more API keys.

    Attributes:
        name: Its name in logs and queues.
        weight: Its share of every queue, relative to the others waiting there.
        max_requests: Requests in flight; None: only the server's own limit counts. The same goes for the next two.
        max_bytes: Bytes of requests in flight.
        max_requests_per_s: Requests per second, over the last second.
        models: The models that it may use; None means all.
        highest_priority: The highest priority that the key in use may ask for: 1 is the highest of all, 0 means none, None any.
        may_manage: Whether the key in use may change how the server runs, such as how many replicas a program has.
    """

    name: str
    weight: float = 1.0
    max_requests: int | None = None
    max_bytes: int | None = None
    max_requests_per_s: float | None = None
    models: frozenset[str] | None = None
    highest_priority: int | None = None
    may_manage: bool = False

    @property
    def is_limited(self) -> bool:
        """Whether its requests in flight are limited."""
        return self.max_requests is not None or self.max_bytes is not None or self.max_requests_per_s is not None

    @property
    def most_at_once(self) -> int | None:
        """How many requests can be admitted for it at one moment; None: only the server's own limit counts."""
        limits = [] if self.max_requests is None else [self.max_requests]
        if self.max_requests_per_s is not None:
            limits.append(max(1, int(self.max_requests_per_s)))
        return min(limits, default=None)

    def may_use(self, model: str) -> bool:
        return self.models is None or model in self.models

    def check_model(self, model: str) -> None:
        """Checks that it may use a model.

        Raises:
            PermissionDeniedError: If it may not.
        """
        if self.models is not None and model not in self.models:
            raise PermissionDeniedError(f"tenant {self.name!r} may not use model {model!r}; it may use {sorted(self.models)}")

    def check_priority(self, priority: int) -> None:
        """Checks that its key may ask for a priority.

        Raises:
            PermissionDeniedError: If it may not.
        """
        highest = self.highest_priority
        if priority and highest is not None and not 0 < highest <= priority:
            allowed = f"{highest} and larger numbers" if highest else "none"
            raise PermissionDeniedError(
                f"priority {priority} is too high for this key of tenant {self.name!r}: it may ask for {allowed}"
            )

    def check_common(self, route: str) -> None:
        """Checks that it may use a route that belongs to no model, and reveals all of them.

        Raises:
            PermissionDeniedError: If it may use only some models.
        """
        if self.models is not None:
            raise PermissionDeniedError(f"tenant {self.name!r} may use some models only, {route!r} shows all")

    def check_managing(self, purpose: str = "change how the server runs") -> None:
        """Checks that its key may manage the server.

        Args:
            purpose: For the error.

        Raises:
            PermissionDeniedError: If it may not.
        """
        if not self.may_manage:
            raise PermissionDeniedError(
                f"this key of tenant {self.name!r} may not {purpose}; `dyorc keys add --may-manage` makes one that may"
            )


ANONYMOUS = Tenant(name="", may_manage=True)
"""All clients of a server without keys."""
