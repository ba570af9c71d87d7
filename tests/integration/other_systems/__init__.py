"""DyOrc on systems other than Linux, and on other Pythons: what can be tried without them."""
