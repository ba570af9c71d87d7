"""One storm over all shapes of DyOrc, with a scorecard: ``python -m tests.storm`` (`make storm`).

`contract.py` says what a *shape* is (a way to run DyOrc) and what a *fault* is (what may happen to it). `single.py` and
`parted.py` have the shapes, made of `members.py`; `faults.py` has faults of several shapes. `driver.py` strikes.
`clients.py` asks for all that `kinds.py` can tell right from wrong. `judgement.py` compares what came with what may come, and
`scorecard.py` writes it down.
"""
