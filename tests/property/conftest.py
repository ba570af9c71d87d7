"""The same examples in every run; no example is timed, because the machine's load is nobody's fault."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "dyorc", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("dyorc")
