"""Replays histories of requests on another version of their workflow, before it is deployed."""
