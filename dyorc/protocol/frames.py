"""Frames: the parts of a streamed answer, one behind the other.

u32 LE json_bytes | u32 LE rest_bytes | JSON, as of a binary answer, or of an error | raw tensors
"""

import struct

LENGTHS = struct.Struct("<II")
"""What a frame begins with: the length of its JSON, and of the raw tensors behind it."""
