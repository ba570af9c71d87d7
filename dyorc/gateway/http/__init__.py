"""The HTTP side of the gateway."""
