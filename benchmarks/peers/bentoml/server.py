"""BentoML 1.4: a service for each program, with adaptive batching, and one in front that runs the flow; a process for each.

    python -m benchmarks.peers.bentoml.server --workload NAME [--port 0]

Requests and answers are bodies of raw bytes; between the services BentoML has a form of its own, with tensors as they are.
Tried on the cascade, on a busy machine; a request costs 7 to 12 ms of processor time in all, most of it BentoML's own (each hop
is an HTTP request in Python), so the settings below differ little:

* The program on the service's event loop, or in a thread: 7 ms of processor time at 32 clients for both. The loop is kept.
* `max_latency_ms` of 100 instead of 10,000: no faster, and requests are refused (503) when it guesses that they will take longer.
* No batching: no shorter latency with one client, and fewer requests a second at 32.
* uvloop and httptools in its environment: the same processor time.
* Its connections between services are kept: by default each client closes all of its own after 100 requests, under those that are
  in flight: 20 of the first 512 requests failed (500).
"""

from benchmarks.peers.child import serve

if __name__ == "__main__":
    # The batcher learns from the first requests how long a batch takes, so there are more than one of them.
    serve(
        "benchmarks.peers.bentoml.main",
        environment={"BENTOML_HOME": "{folder}/home", "BENTOML_DO_NOT_TRACK": "True"},
        num_probes=64,
    )
