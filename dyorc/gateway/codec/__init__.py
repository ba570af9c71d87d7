"""Bodies of inference requests and answers: the JSON protocol with its extensions, and errors. Used by HTTP and by jobs."""
