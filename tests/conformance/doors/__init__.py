"""Clients of other languages and programs, tried against a real server: Go, JavaScript, a browser, curl.

`python -m tests.conformance.doors` runs them. Each has a module with a `DOOR` (`doors.py`); `__main__.py` lists them, so one more
client is one more module and one more name there.
"""
