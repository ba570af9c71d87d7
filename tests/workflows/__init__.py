"""The workflows that the tests serve. Read by the tests as a package and by servers as files."""
