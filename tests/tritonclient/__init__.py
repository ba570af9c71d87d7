"""NVIDIA's own client against the server: what is served, and a script for an environment that has the client."""
