"""Deploys and retires versions of workflows while a server runs."""
