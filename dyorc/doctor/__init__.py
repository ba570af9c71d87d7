"""`dyorc doctor`: looks for what would keep DyOrc from working well on this machine, and says how to mend it.

`diagnosis.py` runs all checks. Each check is a function of a `Subject` that yields `Finding`s, in the file of what it looks at:
`libraries`, `machine`, `shared_memory`, `settings`, `network`, `accelerators` (Ray and GPUs), `server` (one that runs).
A check that raises is a finding itself. Nothing here is needed to serve.
"""
