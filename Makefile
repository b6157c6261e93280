# Entry points for development and release.

CONFIG ?= examples/greenroom.toml
# A path, or postgres://USER:PASSWORD@HOST/NAME; empty for the configured database.
DATABASE ?=

.PHONY: run test check words release crash test-real-model bench bench-core bench-store

# Builds and serves the market example, and prints the link to open.
run:
	scripts/web.sh
	cargo build --workspace
	$(if $(DATABASE),GREENROOM_DATABASE='$(DATABASE)' )$${CARGO_TARGET_DIR:-target}/debug/greenroom serve --config $(CONFIG)

# Runs all tests, with real dependencies: MCP servers from npm and PyPI, and the providers' own SDKs.
test:
	scripts/test-deps.sh
	scripts/web.sh
	npm test --silent --prefix web
	cargo build --workspace
	cargo test --workspace --no-fail-fast

# Runs the checks and the tests that a commit must pass.
check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(MAKE) words
	@if command -v cargo-deny >/dev/null; then cargo deny --offline check bans licenses sources; \
	else echo "cargo-deny is not installed; licenses and sources are not checked"; fi
	$(MAKE) test

# Checks the language of names, doc comments and texts, after a test of the check itself; needs python3.
words:
	scripts/check-words-test
	scripts/check-words

# Builds the server for deployment, target/guided/greenroom, with profile-guided optimization.
release:
	scripts/release.sh

# Kills the server 2,000 times, at random moments and at named points; see docs/durability.md.
crash:
	cargo build --workspace
	CRASH_KILLS=$${CRASH_KILLS:-2000} cargo test --workspace --test crash -- --nocapture

# Tests with a small language model that runs on this machine: streaming, usage, cancellation.
test-real-model:
	scripts/real-model.sh
	cargo build --workspace
	node --test --test-timeout=300000 tests/real-model/conversation.test.mjs

# Measures the store on both databases, with up to 100,000 stored sessions.
bench-store:
	cargo bench --bench store

# Measures the cost of a run and compares it; see bench/README.md. `BENCH` has further options.
bench: release
	$${CARGO_TARGET_DIR:-target}/guided/greenroom-bench run --write bench/results.md $(BENCH)

# Measures single components: both parsers, decide and evolve, encoders, the journal, the bus; and counts
# their allocations.
bench-core:
	cargo bench --package greenroom-bench --features micro --bench parts
	cargo bench --package greenroom-bench --features micro --bench allocations -- --write results-parts.md
