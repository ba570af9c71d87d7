"""Durable jobs: submitted now, run when there is room, fetched later."""
