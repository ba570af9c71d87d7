"""Durable jobs: what is kept of them, and where. SQLite for one machine, Redis for several."""
