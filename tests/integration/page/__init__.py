"""Tests of the live page in a browser, against data made up in the form that the server's routes have."""
