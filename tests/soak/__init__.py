"""Long runs: a server under a moderate load for an hour or more, and whether anything of it grows.

    python -m tests.soak --minutes 60

`load` asks and checks each answer, `changes` deploys, rolls back and scales meanwhile, `samples` measures, `trends` says of each
series whether it is flat, and `picture` draws them. docs/testing/soak.md says what came.
"""
