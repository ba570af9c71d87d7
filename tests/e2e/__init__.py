"""A real `dyorc serve` with its Ray."""
