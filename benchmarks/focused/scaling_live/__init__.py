"""Scaling on a real server: an on/off load next to Ray Serve's autoscaler, kills under load, requests to a cold branch."""
