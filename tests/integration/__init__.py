"""Real links, real sockets, no Ray: orchestrator, gateway and workers in this process, or workers in processes of their own."""
