"""Streams through three programs, compared with Ray Serve's composition."""
