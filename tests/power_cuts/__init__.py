"""A power cut at any moment, on the real stores and files.

Processes use DyOrc's own store on the real SQLite while a preloaded library logs each step on their files (`file_log`). From
one log, thousands of disks are made as a cut may leave them (`disk`), each is opened as a server does that starts again, and its
contents are compared with what was acknowledged (`marks`, `recovery`).
"""
