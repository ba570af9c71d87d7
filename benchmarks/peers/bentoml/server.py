"""BentoML 1.4: one service per program, with adaptive batching, and one in front that runs the flow; each in its own process.

    python -m benchmarks.peers.bentoml.server --workload NAME [--port 0]

Requests and answers are bodies of raw bytes; between its services BentoML uses its own format, with unencoded tensors. The
following was tried on the cascade, on a busy machine. A request costs 7 to 12 ms of processor time in all, most of it BentoML's
own (each hop is an HTTP request in Python), so the settings differ little:

* The program on the service's event loop, or in a thread: 7 ms of processor time at 32 clients for both. The loop is kept.
* On emulated accelerators, programs that take more than 10 ms in threads: p50 386 ms instead of 1,127 ms at 45 requests/s of
  `guarded`. For shorter ones the loop is better: 54 ms instead of 140 ms at low rates of the cascade.
* `max_latency_ms` of 100 instead of 10,000: no faster, and it refuses requests (503) when it predicts that they will take longer.
* No batching: no shorter latency with one client, and fewer requests per second at 32.
* uvloop and httptools in its environment: the same processor time.
* Connections between services are kept open. By default each client closes all of its connections after 100 requests, even those
  in use: 20 of the first 512 requests failed (500).
"""

from benchmarks.peers.child import serve

if __name__ == "__main__":
    # The batcher learns from the first requests how long a batch takes, so there is more than one.
    serve(
        "benchmarks.peers.bentoml.main",
        environment={"BENTOML_HOME": "{folder}/home", "BENTOML_DO_NOT_TRACK": "True"},
        num_probes=64,
    )
