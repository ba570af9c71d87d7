"""The terms on which a request is served: set when it is let in, and passed on whole until the engine reads them."""

import msgspec


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a request may ask of the server, apart from its inputs.

    Attributes:
        deadline_ns: When the answer must be there, on the monotonic clock; None stands for the engine's own timeout.
        priority: 1 is the highest; 0 stands for none, and comes last.
        tenant: Whose request it is; an empty name stands for everybody.
        weight: The tenant's share of every queue, beside the weights of the others that wait there.
        explain: Whether the answer comes with the request's story.
    """

    deadline_ns: int | None = None
    priority: int = 0
    tenant: str = ""
    weight: float = 1.0
    explain: bool = False
