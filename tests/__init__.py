"""Tests. What several folders share lies here: `leaks`, `oip`, `deadlines`, `server_process`, and the workflows to serve."""
