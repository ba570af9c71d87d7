"""What it costs to split MiniLM over two processes by a plan, beside one process and two replicas."""
