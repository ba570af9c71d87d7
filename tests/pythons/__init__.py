"""DyOrc's core on other Pythons: `make test-pythons`."""
