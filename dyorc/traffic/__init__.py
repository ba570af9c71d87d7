"""When requests come: arrival processes, and traces in files. For the simulator and the load generator."""
