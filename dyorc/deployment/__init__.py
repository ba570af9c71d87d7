"""Versions of workflows that come and go while a server runs."""
