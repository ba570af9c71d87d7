"""Durable jobs over HTTP: submitted now, run when there is room, fetched later."""
