"""Plans that people write by hand: data parallel, ZeRO, Megatron's tensor parallel with pipelines, and parallel experts.

All of them place the sources of a program and then follow the graph (follow.py): each node takes the strategy for which least
has to be moved. So they work on any program, and differ only in where they place its sources.
"""
