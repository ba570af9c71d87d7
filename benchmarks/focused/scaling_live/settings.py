"""What both systems are told about the guarded example's programs."""

MIN_REPLICAS, MAX_REPLICAS = 0, 2
DOWNSCALE_DELAY_S = 2.0
"""DyOrc's, so that replicas come and go with each of the load's short phases."""

OPTIONS_VARIABLE = "BENCHMARK_AUTOSCALING"
"""Environment variable with Ray Serve's autoscaling options beyond the bounds, as JSON."""
REPLICAS_PATH = "/"
"""Where the peer's ingress tells how many replicas there are."""
INFER_PATH = "/infer"
"""Where it takes requests."""
