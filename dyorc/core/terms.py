"""The terms on which a request is served: set on admission, and passed on whole until the engine reads them."""

import msgspec


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a request may ask of the server, apart from its inputs.

    Attributes:
        deadline_ns: When the answer must be there, on the monotonic clock; None: the engine's default applies.
        priority: 1 is the highest; 0 means none, and comes last.
        tenant: Whose request it is; empty for everybody.
        weight: The tenant's share of every queue, relative to the others waiting there.
        waits_for_effects: Whether the answer must come after all effects of the request, whatever its workflow says.
    """

    deadline_ns: int | None = None
    priority: int = 0
    tenant: str = ""
    weight: float = 1.0
    waits_for_effects: bool = False
