"""Tests. Modules that several folders share are here: `leaks`, `oip`, `deadlines`, `server_process`, and the workflows to
serve."""
