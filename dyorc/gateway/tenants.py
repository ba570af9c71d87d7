"""Who sends requests, and what that is worth."""

from dataclasses import dataclass

from dyorc.errors import PermissionDeniedError


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
        highest_priority: The highest priority that the key in use may ask for, of which 1 is the highest of all; 0 stands for
            none, None for any.
    """

    name: str
    weight: float = 1.0
    max_requests: int | None = None
    max_bytes: int | None = None
    max_requests_per_s: float | None = None
    models: frozenset[str] | None = None
    highest_priority: int | None = None

    def may_use(self, model: str) -> bool:
        """Whether a model is one of its own."""
        return self.models is None or model in self.models

    def check_model(self, model: str) -> None:
        """Does nothing if it may use a model.

        Raises:
            PermissionDeniedError: If not.
        """
        if self.models is not None and model not in self.models:
            raise PermissionDeniedError(f"tenant {self.name!r} may not use model {model!r}; it may use {sorted(self.models)}")

    def check_priority(self, priority: int) -> None:
        """Does nothing if its key may ask for a priority.

        Raises:
            PermissionDeniedError: If not.
        """
        highest = self.highest_priority
        if priority and highest is not None and not 0 < highest <= priority:
            allowed = f"{highest} and larger numbers" if highest else "none"
            raise PermissionDeniedError(
                f"priority {priority} is too high for this key of tenant {self.name!r}: it may ask for {allowed}"
            )

    def check_common(self, what: str) -> None:
        """Does nothing if it may use what belongs to no model, and may tell of all of them.

        Raises:
            PermissionDeniedError: If it may use some models only.
        """
        if self.models is not None:
            raise PermissionDeniedError(f"tenant {self.name!r} may use some models only, and {what!r} tells of all")


ANONYMOUS = Tenant(name="")
"""Everybody, where no keys are asked for."""
