"""How to write requests and read answers: one file per protocol."""
