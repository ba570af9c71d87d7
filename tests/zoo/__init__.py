"""Models of other libraries, built tiny from their configurations: captured, planned, run, and compared with the module itself.

models/      which models there are, by library
training.py  a module that returns its loss, of each
reference.py what torch itself computes of it, and how results are compared
capturing.py captures a model, and compares the program with the module
planning.py  plans it on each cluster, and runs the plans on real ranks
worker.py    does so for one model after the other, in a process that may hang or crash
supervising.py     starts workers, and ends those that take too long
report.py    counts, the table, and the page docs/testing/zoo.md
__main__.py  all of them: `make zoo`
"""
