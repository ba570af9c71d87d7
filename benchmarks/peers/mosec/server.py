"""Mosec 0.9.8: all programs in one worker, since its stages form a line and cannot branch; a batch is answered in lockstep.

    python -m benchmarks.peers.mosec.server --workload NAME [--port 0]

A new request cannot join a batch that is being answered, and all programs share one process. Tried on the cascade, on a busy
machine, so that only processor time compares well:

* One worker, or two: 0.11 or 0.20 ms of processor time for a request at 32 clients, since two form smaller batches. One is kept,
  as all systems run one copy of each program.
* A `max_wait_time` of 1 ms, or none: with none, batches at 32 clients are half as large, for a third more processor time, and a
  lone request is about 1 ms faster. 1 ms is kept.

* On emulated accelerators, which workers share, 1, 2, 3 or 4 workers: at 400 requests/s of the cascade, p50 is 175, 75, 106 and
  135 ms; at 45 requests/s of `guarded` 364, 363, 501 and 621 ms. Two are kept there.

`chain` runs in the one worker too. Three stages in a line, where each tensor goes through a socket, were not tried.
"""

from benchmarks.peers.child import serve

NOTE = "all programs in one process; a new request cannot join a batch that is being answered"

if __name__ == "__main__":
    serve("benchmarks.peers.mosec.worker")
