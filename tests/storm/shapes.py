"""All shapes, by name."""

import random
from collections.abc import Callable

from tests.storm.containers import Containers
from tests.storm.contract import Shape
from tests.storm.parted import PartedServers
from tests.storm.single import SingleServer

SHAPES: dict[str, Callable[[str, random.Random], Shape]] = {
    "cell": SingleServer,
    "cells": SingleServer,
    "ray": SingleServer,
    "parts": PartedServers,
    "parts-redis": PartedServers,
    "docker": Containers,
}


def make_shape(name: str, chance: random.Random) -> Shape:
    """Returns a shape that has not started."""
    return SHAPES[name](name, chance)
