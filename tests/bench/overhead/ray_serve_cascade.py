"""The overhead benchmark's peer: the same cascade, composed the way Ray Serve itself offers."""

from __future__ import annotations

import argparse
import ctypes
import http.client
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

W = float(os.environ.get("X_WAIT", "0"))
MCB = int(os.environ.get("X_MCB", "1"))
SER = os.environ.get("X_SER")
mode = sys.argv[1]; port=int(sys.argv[2])
os.environ["RAY_USAGE_STATS_ENABLED"]="0"
if os.environ.get("X_LOG","0")=="0": os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR","0")
tmp = tempfile.mkdtemp(prefix="ov")
if mode=="throughput":
    os.environ["RAY_SERVE_THROUGHPUT_OPTIMIZED"]="1"
    os.environ["RAY_SERVE_ENABLE_HA_PROXY"]=os.environ.get("X_HA","1")
    os.environ["RAY_SERVE_HAPROXY_CONFIG_FILE_LOC"]=tmp+"/h/haproxy.cfg"
    os.environ["RAY_SERVE_HAPROXY_SOCKET_PATH"]=tmp+"/h/admin.sock"
    os.environ["RAY_SERVE_HAPROXY_SERVER_STATE_BASE"]=tmp+"/h"
    os.environ["RAY_SERVE_HAPROXY_SERVER_STATE_FILE"]=tmp+"/h/server-state"
    os.environ["RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH"]=tmp+"/h/m.sock"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ["PYTHONPATH"]=os.path.dirname(os.path.abspath(__file__))
import numpy as np
import ray
import torch
from ray import serve
from starlette.requests import Request
from starlette.responses import Response
import overhead_nets as nets

@serve.deployment(max_ongoing_requests=1000, ray_actor_options={"num_cpus":1})
class Small:
    def __init__(self): self.net=nets.build_small()
    @serve.batch(max_batch_size=32,batch_wait_timeout_s=W,max_concurrent_batches=MCB)
    async def __call__(self, xs):
        with torch.inference_mode():
            return list(self.net(torch.from_numpy(np.stack(xs))).numpy())
@serve.deployment(max_ongoing_requests=1000, ray_actor_options={"num_cpus":1})
class Large:
    def __init__(self): self.net=nets.build_large()
    @serve.batch(max_batch_size=32,batch_wait_timeout_s=W,max_concurrent_batches=MCB)
    async def __call__(self, xs):
        with torch.inference_mode():
            return list(self.net(torch.from_numpy(np.stack(xs))).numpy())
@serve.deployment(max_ongoing_requests=1000, ray_actor_options={"num_cpus":1})
class Ingress:
    def __init__(self, small, large):
        if SER:
            small=small.options(request_serialization=SER,response_serialization=SER); large=large.options(request_serialization=SER,response_serialization=SER)
        self.small=small; self.large=large
    async def __call__(self, request: Request):
        x=np.frombuffer(await request.body(), np.float32)
        y=await self.small.remote(x)
        if not nets.is_done(y):
            y=await self.large.remote(x)
        return Response(y.tobytes(), media_type="application/octet-stream")

from ray.serve.schema import LoggingConfig
ray.init(address="local", num_cpus=8, include_dashboard=False, object_store_memory=100_000_000, _temp_dir=tmp, configure_logging=False, log_to_driver=False)
serve.start(http_options={"host":"127.0.0.1","port":port})
serve.run(Ingress.bind(Small.bind(), Large.bind()), logging_config=LoggingConfig(enable_access_log=os.environ.get("X_AL","0")=="1"))
print("ready", flush=True)
os.system(f"ps -e -o pid,ppid,pgid,sid,args --sort=pid --width 130 | grep -v ' 2  ' > /tmp/w/ps_{mode}.txt; ss -ltnp > /tmp/w/ss_{mode}.txt")
signal.sigwait({signal.SIGTERM, signal.SIGINT})
t=time.time()
serve.shutdown(); print("serve down",time.time()-t,flush=True)
ray.shutdown(); print("ray down",time.time()-t,flush=True)
shutil.rmtree(tmp)
