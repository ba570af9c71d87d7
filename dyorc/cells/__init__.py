"""Programs in the server's own process, with its gateway and engine: requests do not cross processes."""
