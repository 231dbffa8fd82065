# make up    installs what is missing, builds, and runs everything on embedded defaults
# make test  installs what the tests need and runs all of them
# make help  lists every target

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CACHE  ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cadence
BIN    := bin/cadence
TAGS   ?= llama
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo dev)

# One set of flags for every build: cgo's environment is part of the key of Go's build cache, and llama.cpp takes
# minutes to compile.
LLAMA_DIR = $(shell go list -m -f '{{.Dir}}' github.com/ollama/ollama)
export CGO_ENABLED  := 1
export CGO_CFLAGS   := -O3 -march=native
export CGO_CXXFLAGS := -O3 -march=native
export CGO_CPPFLAGS = -I$(LLAMA_DIR)/llama/llama.cpp/include -I$(LLAMA_DIR)/ml/backend/ggml/ggml/include -DGGML_USE_CPU_REPACK

LINT   := $(CACHE)/tools/golangci-lint-$(shell sha256sum tools/go.sum | cut -c1-12)
PYTHON := $(CACHE)/python-$(shell sha256sum services/e2e/clients/requirements.txt | cut -c1-12)
NODE   := $(CACHE)/node-$(shell sha256sum services/e2e/clients/package-lock.json | cut -c1-12)
export CADENCE_TEST_PYTHON := $(PYTHON)/bin/python
export CADENCE_TEST_NODE_MODULES := $(NODE)/node_modules

.PHONY: help
help: ## list targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: modules
modules:
	@go mod download

.PHONY: build
build: modules ## build bin/cadence with llama.cpp (the first build compiles it: 3 to 6 minutes)
	go build -tags '$(TAGS)' -ldflags '-X main.version=$(VERSION)' -o $(BIN) ./services/cadence

.PHONY: deps
deps: build ## install the embedded ClickHouse engine into the cache
	$(BIN) deps

.PHONY: up
up: deps ## run everything on embedded defaults; ARGS="--listen :9000" passes flags
	$(BIN) up $(ARGS)

.PHONY: clients
clients: $(PYTHON)/done $(NODE)/done ## install the OpenAI clients that the tests use into the cache
$(PYTHON)/done: services/e2e/clients/requirements.txt
	rm -rf $(@D) && python3 -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@
$(NODE)/done: services/e2e/clients/package.json services/e2e/clients/package-lock.json
	rm -rf $(@D) && mkdir -p $(@D) && cp $^ $(@D)/
	cd $(@D) && npm ci --silent --no-audit --no-fund
	touch $@

.PHONY: test
test: deps clients ## run all tests
	go vet -tags '$(TAGS)' ./...
	go test -tags '$(TAGS)' -timeout 20m $$(go list -tags '$(TAGS)' ./... | grep -v /services/e2e)
	go test -tags '$(TAGS)' -timeout 30m -count=1 ./services/e2e

.PHONY: race
race: ## run the tests of every pure-Go package under the race detector
	go test -race -timeout 20m $$(go list ./... | grep -v /services/e2e)

.PHONY: lint
lint: $(LINT) ## run the linters
	$(LINT) run ./...
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
$(LINT): tools/go.mod tools/go.sum
	mkdir -p $(@D)
	cd tools && go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: bench
bench: ## run every Go benchmark once (BENCHTIME=10x COUNT=10 for figures)
	go test -tags '$(TAGS)' -run '^$$' -bench . -benchtime=$(or $(BENCHTIME),1x) -count=$(or $(COUNT),1) ./...

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (default 20s)
	@for pkg in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(or $(FUZZTIME),20s) $$pkg; done; done

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
	rm -rf bin
