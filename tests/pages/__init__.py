"""Runs the code of the documentation's pages as a reader would: docs/testing/code-blocks.md.

page_run.py      a page from its first block to its last
commands.py      commands of a shell, with the output that the page shows
__main__.py      `python -m tests.pages PAGE`
"""
