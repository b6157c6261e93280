# The only entry points to remember.

CONFIG ?= examples/greenroom.toml

.PHONY: run test check bench

# Everything that the README's tour needs, and one link to open.
run:
	cargo build --workspace
	$${CARGO_TARGET_DIR:-target}/debug/greenroom serve --config $(CONFIG)

# Every test, against real parts: MCP servers from npm and PyPI, and the providers' own SDKs.
test:
	scripts/test-deps.sh
	cargo build --workspace
	cargo test --workspace --no-fail-fast

# What a commit must pass, besides the tests.
check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then cargo deny --offline check bans licenses sources; \
	else echo "cargo-deny is not installed; licences and sources are not checked"; fi
	$(MAKE) test

# What the core costs, in one table, optimised.
bench:
	cargo bench --package greenroom-core --bench core
