"""Clients that this project did not write, tried against a real server: other languages, a browser, curl, clients of OpenAI's API
and of the Model Context Protocol, load generators.

`python -m tests.conformance.doors` runs them. Each is a `Door` of a module here (`doors.py`); `__main__.py` lists them, so one
more client is one more module and one more name there.
"""
