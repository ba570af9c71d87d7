"""LitServe 0.2.19: all programs in one LitAPI, as LitServe composes models; a batch of requests is answered in lockstep.

    python -m benchmarks.peers.litserve.server --workload NAME [--port 0]

A new request cannot join a batch that is being answered, and all programs share one process. Tried on the cascade:

* A `batch_timeout` of 1 or 2 ms. It is a window that is always open, even without requests, so a lone request waits for the rest
  of it. With 2 ms, batches at 32 clients are twice as large for the same processor time (1.7 ms per request), since that is
  mostly LitServe's own; 1 ms is kept, for the shorter wait. With 0, the worker would poll without a pause.
* Two workers: smaller batches, and 2.4 ms of processor time per request. One is kept, as all systems run one copy of each
  program.
* On emulated accelerators, two workers that share them, as for Mosec.
* `fast_queue` (ZeroMQ) does nothing in this version: the server stores the transport's kind under a name that is never read. Set
  by hand, no answer arrived in two minutes; so answers go through a queue of `multiprocessing`, as requests do.
"""

import signal

from benchmarks.peers.child import serve

NOTE = "all programs in one process; a new request cannot join a batch that is being answered"

if __name__ == "__main__":
    serve("benchmarks.peers.litserve.api", stop_signal=signal.SIGINT)  # it does not end its processes on SIGTERM
