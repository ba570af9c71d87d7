"""Programs in the server's own process."""
