"""What can be seen of a running server: metrics, records of requests, traces, logs."""
