# The only entry points to remember.

CONFIG ?= examples/greenroom.toml
# A path, or postgres://USER:PASSWORD@HOST/NAME; empty is what the configuration says.
DATABASE ?=

.PHONY: run test check release crash test-real-model bench bench-core bench-store

# Everything that the README's tour needs, and one link to open.
run:
	scripts/web.sh
	cargo build --workspace
	$(if $(DATABASE),GREENROOM_DATABASE='$(DATABASE)' )$${CARGO_TARGET_DIR:-target}/debug/greenroom serve --config $(CONFIG)

# Every test, against real parts: MCP servers from npm and PyPI, and the providers' own SDKs.
test:
	scripts/test-deps.sh
	scripts/web.sh
	npm test --silent --prefix web
	cargo build --workspace
	cargo test --workspace --no-fail-fast

# What a commit must pass, besides the tests.
check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then cargo deny --offline check bans licenses sources; \
	else echo "cargo-deny is not installed; licences and sources are not checked"; fi
	$(MAKE) test

# The server to be deployed, target/guided/greenroom: optimised for what it does most.
release:
	scripts/release.sh

# Two thousand kills, at random moments and at named points; see docs/durability.md.
crash:
	cargo build --workspace
	CRASH_KILLS=$${CRASH_KILLS:-2000} cargo test --workspace --test crash -- --nocapture

# A conversation with a small language model that runs on this machine: streamed, counted, cancelled.
test-real-model:
	scripts/real-model.sh
	cargo build --workspace
	node --test --test-timeout=300000 tests/real-model/conversation.test.mjs

# What the store costs on both databases, and 100,000 stored sessions; optimised.
bench-store:
	cargo bench --bench store

# What a run costs beside the limits and the peers; see bench/README.md. `BENCH` is passed on.
bench: release
	$${CARGO_TARGET_DIR:-target}/guided/greenroom-bench run --write bench/results.md $(BENCH)

# What the parts cost alone, optimised: both parsers, decide and evolve, encoders, the journal, the bus;
# and what they allocate.
bench-core:
	cargo bench --package greenroom-bench --features micro --bench parts
	cargo bench --package greenroom-bench --features micro --bench allocations -- --write results-parts.md
