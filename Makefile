# Entry points for development and release. `make help` lists them.

CONFIG ?= examples/greenroom.toml
# A path, or postgres://USER:PASSWORD@HOST/NAME; empty for the configured database.
DATABASE ?=
# Inputs of each property test in `make properties`.
PROPTEST_CASES ?= 1000000

.PHONY: help run test test-all check words properties crash test-real-model release bench bench-core bench-store
# The targets share the processors and the folder `target`.
.NOTPARALLEL:

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

run: ## Build and start the server with the market example, and print the link to open
	scripts/web.sh
	cargo build --package greenroom --package greenroom-market
	$(if $(DATABASE),GREENROOM_DATABASE='$(DATABASE)' )$${CARGO_TARGET_DIR:-target}/debug/greenroom serve --config $(CONFIG)

# Uses real dependencies: MCP servers from npm and PyPI, the providers' own SDKs, a browser.
test: ## Install the test dependencies, build, and run the tests of a commit; 15 minutes
	scripts/test-deps.sh
	scripts/web.sh
	npm test --silent --prefix web
	cargo build --workspace
	cargo test --workspace --no-fail-fast

test-all: test properties crash test-real-model ## Run every test, also the long ones; hours

check: ## Check formatting, lints, words and licenses, then run `make test`
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(MAKE) words
	@if command -v cargo-deny >/dev/null; then cargo deny --offline check bans licenses sources; \
	else echo "cargo-deny is not installed; licenses and sources are not checked"; fi
	$(MAKE) test

words: ## Check the language of names, doc comments and texts; needs python3
	scripts/check-words-test
	scripts/check-words

# Optimized, with the checks of a debug build. Names no tests, so that new ones are included. A simulation
# is a whole session with crashes, so there are fewer of them.
properties: ## Run every property test with a million inputs, and 20,000 simulated sessions
	PROPTEST_CASES=$(PROPTEST_CASES) cargo test --profile fuzz --no-fail-fast --package greenroom-core \
	  --package greenroom-actors --package greenroom --lib
	PROPTEST_CASES=$(PROPTEST_CASES) cargo test --profile fuzz --no-fail-fast --package greenroom-core \
	  --test decoder_fuzz --test model_fuzz --test model_streams --test model_requests
	PROPTEST_CASES=20000 cargo test --profile fuzz --package greenroom-core --test simulation

crash: ## Kill the server 2,000 times (CRASH_KILLS): docs/durability.md
	cargo build --workspace
	CRASH_KILLS=$${CRASH_KILLS:-2000} cargo test --workspace --test crash -- --nocapture

test-real-model: ## Test with a small language model on this machine; downloads 200 MB
	scripts/real-model.sh
	cargo build --workspace
	node --test --test-timeout=300000 tests/real-model/conversation.test.mjs

release: ## Build the server for deployment, target/guided/greenroom: docs/operations.md
	scripts/release.sh

bench: release ## Measure the cost of a run and compare it (options: BENCH): bench/README.md
	$${CARGO_TARGET_DIR:-target}/guided/greenroom-bench run --write bench/results.md $(BENCH)

bench-core: ## Measure the parts: parsers, decide and evolve, encoders, journal, bus; and their allocations
	cargo bench --package greenroom-bench --features micro --bench parts
	cargo bench --package greenroom-bench --features micro --bench allocations -- --write results-parts.md

bench-store: ## Measure the store on both databases, with up to 100,000 stored sessions: docs/storage.md
	cargo bench --bench store
