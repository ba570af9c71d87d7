"""The commands. Each file is named for its command, `main` puts them together; the other files are what several commands share.

Commands read arguments, call what does the work, and print. Nothing imports them.
"""
