"""The state of the engine: requests, tasks, journals, calls, futures. Data and walks over it; nothing here decides.

It is one aggregate, split over files to be read one at a time: a request has tasks, a task has segments of a journal, a segment
has calls, and a call or task has a future that knows its producer and what waits for it. So the files refer to each other's
types. At run time they import each other in one order: futures, lists of parts, calls, journal, requests.
"""
