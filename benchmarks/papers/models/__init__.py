"""Models that only the papers' tables need: each builder returns a module whose call returns its loss, and example inputs."""

from benchmarks.papers.models.inception import inception
from benchmarks.papers.models.recycled import recycled
from benchmarks.papers.models.swin import swin
from benchmarks.papers.models.unet import unet

__all__ = ["inception", "recycled", "swin", "unet"]
