"""A fan-out: each digit on a strip is read by itself."""
