"""The load generator: sends requests at planned times, checks every answer, and says what came of it."""
