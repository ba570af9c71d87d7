"""Our planners beside others: plans of the same models on the same clusters, priced in one simulator."""
