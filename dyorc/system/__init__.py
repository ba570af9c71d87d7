"""This process and its machine: memory, threads, ports, standard streams, the lines of files and logs."""
