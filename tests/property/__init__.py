"""Promises that hold for all inputs, tried on inputs that Hypothesis makes up."""
