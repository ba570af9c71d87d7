"""The load generator: sends requests at planned times, checks every answer, and reports the results."""
