"""Composition roots: each puts the parts of one process together, in the order below, and stops them in reverse.

* One process for everything, `single_process.serve_embedded`: targets, programs, the request pipeline, jobs, the deployer,
  the HTTP and gRPC endpoints.
* A gateway, `gateway_process.serve_gateway`: the store, a backend that follows the leaders of its groups, the pipeline,
  jobs, the endpoints.
* An orchestrator, `orchestrator_process.serve_group`: the store, targets, leadership (it waits here until it leads), the versions
  that the group has deployed, programs, the server for gateways, the deployer.

`runtime` starts what runs the programs: this process, Ray's replicas, or both.
"""
