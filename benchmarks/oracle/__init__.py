"""The oracle line: what a scheduler that knows every outcome in advance achieves with the same programs, at no other cost."""
