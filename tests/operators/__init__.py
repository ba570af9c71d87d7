"""Rules of the planners, definitions of the verifier and the simplifier beside torch, on torch's own samples of its operators.

opinfo.py     torch's samples as functions, forward and backward
written.py     functions that these leave out
recording.py     what a function computes, as a program
samples.py     the program in its normal form, compared with torch, and each of its operations
gathering.py     of each operation, one sample of each kind
ways.py     splits a sample in all ways that its rule allows
elements.py     torch's numbers as elements of the verifier's field
variants.py     changes of tensors that a definition says something about
meanings.py     the definition of an operation beside torch
closeness.py     what is equal within rounding
misreadings.py     mistakes, and mutations.py makes them in a rule and a definition at once
simplifications.py     mistakes of the simplifier
results.py     checks, and adds up
__main__.py     all of it: `make operators`
"""
