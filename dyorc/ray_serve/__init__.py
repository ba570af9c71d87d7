"""Replicas as Ray Serve deployments: on our own Ray, or on an existing cluster."""
