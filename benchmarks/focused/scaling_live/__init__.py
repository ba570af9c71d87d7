"""Scaling on a real server: an on/off load beside Ray Serve's autoscaler, kills under load, requests to a cold branch."""
