"""A fan-out: the digits on a strip, each read by itself."""
