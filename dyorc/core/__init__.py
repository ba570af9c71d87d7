"""Values that everything passes on: tensors and arrays, a request's terms, its place in a trace, its receiver. No I/O."""
