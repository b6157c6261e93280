#!/bin/sh
# Runs the fuzz tests of all decoders of outside input with a million inputs each, or with
# PROPTEST_CASES. Optimized, with the checks of a debug build.
set -eu
cd "$(dirname "$0")/.."
export PROPTEST_CASES="${PROPTEST_CASES:-1000000}"
cargo test --profile fuzz -p greenroom-core --test decoder_fuzz --test model_fuzz
cargo test --profile fuzz -p greenroom --lib -- decoder_fuzz
