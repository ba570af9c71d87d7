"""Operations that work on each plane, the last dimensions, of each sample and channel by itself."""

import re

_PLANES_NAMES = """
    max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices max_pool3d_with_indices_backward
    adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d adaptive_max_pool3d_backward
    replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
    avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_bicubic2d
    upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward upsample_bilinear2d_backward
    upsample_bicubic2d_backward
"""
PLANES = frozenset(_PLANES_NAMES.split())
WITH_POSITIONS = frozenset({"max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d"})
"""Operations that also return where in the plane each element comes from."""


def num_space_of(name: str) -> int:
    """Returns how many dimensions a plane has, which the operation's name says: 2 of `avg_pool2d`."""
    digit = re.search(r"(\d)d", name)
    assert digit, name
    return int(digit[1])
