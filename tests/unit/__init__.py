"""Tests of one part each: fakes, a clock that the test moves, no sockets, no sleeps."""
