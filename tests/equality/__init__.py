"""Every planner's plans of every model on every cluster: real ranks compute what one device computes, and the verifier proves it.

cases.py     which plans there are
checking.py     runs one, and compares
report.py     adds up
__main__.py     all of them: `make equality`
"""
