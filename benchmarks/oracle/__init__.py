"""The oracle line: what a scheduler that knows every outcome in advance gets from the same programs, with no other cost."""
