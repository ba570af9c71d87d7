"""The load that a target gets."""

import msgspec


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """A plan for one measurement. Travels to the workers as JSON.

    Attributes:
        arrivals: "poisson", "gamma", "constant", "ramp" or "trace" (open loop: requests are sent when they are due, whatever
            happened to earlier ones), or "closed" (each of `num_clients` sends its next request when it has its answer).
        rate_rps: Open loop: mean requests per second; for a ramp, at its end.
        start_rps: For a ramp: requests per second at its start. The rate grows evenly.
        cv: For gamma: the gaps' coefficient of variation.
        trace: For trace: a file of timestamps in seconds, one per line; stretched to `rate_rps` unless that is 0.
        num_clients: Closed loop: the number of clients.
        warm_up_s: For how long the same load is sent before the measured time.
        duration_s: The measured time.
        drain_s: How long to wait for the last answers.
        slo_s: Answers that take longer do not count as goodput.
        num_workers: Processes that share the load.
        niceness: Added to the workers' niceness. Below 0, they take precedence over a server on the same cores. That needs a
            privilege, without which it is ignored.
        seed: The same seed plans the same times.
    """

    arrivals: str = "poisson"
    rate_rps: float = 0.0
    start_rps: float = 0.0
    cv: float = 4.0
    trace: str = ""
    num_clients: int = 1
    warm_up_s: float = 1.0
    duration_s: float = 5.0
    drain_s: float = 5.0
    slo_s: float | None = None
    num_workers: int = 1
    niceness: int = 0
    seed: int = 0
