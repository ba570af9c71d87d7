"""Programs in the server's own process, beside its gateway and engine: nothing hops between processes."""
