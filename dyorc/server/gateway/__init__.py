"""``dyorc gateway``: what clients talk to, without programs. Orchestrators run the requests."""
