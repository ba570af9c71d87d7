"""Gateway and orchestrator in processes of their own: the desk is the orchestrator's end, the remote backend the gateway's."""
