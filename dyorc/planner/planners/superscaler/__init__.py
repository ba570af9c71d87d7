"""Plans that people write as constraints, in SuperScaler's three phases (recipe.py), and its published examples as planners.

coshard.py     one device runs the parts of a layer one after another, for less memory
pipelines.py   pipelines whose stages share an embedding, or that go forward three times for each time backward
"""

from dyorc.planner.planners.superscaler.recipe import Cut, Recipe, WorkUnit

__all__ = ["Cut", "Recipe", "WorkUnit"]
