#!/usr/bin/env bash
# Builds the server for deployment with profile-guided optimization. The first, instrumented build records a
# profile while it runs the benchmark's training load and the tour's evaluation. The second build uses that
# profile, and places the functions that ran next to each other. Two optimized builds take 25 minutes on two
# cores. The result is in target/guided. Does nothing if it is up to date.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${CARGO_TARGET_DIR:-target}/guided

fail() {
  echo "release: $1" >&2
  exit 1
}

if [[ -x $out/greenroom && -z $(find src actors bench/src migrations web/dist Cargo.toml Cargo.lock \
  scripts/release.sh -type f -newer "$out/greenroom" -print -quit) ]]; then
  exit 0
fi

host=$(rustc --print host-tuple)
[[ $host == x86_64-unknown-linux-gnu ]] ||
  fail "needs x86_64-unknown-linux-gnu, not $host; use cargo build --release instead"

# llvm-profdata of the toolchain (`rustup component add llvm-tools`) or of the system. An older version
# can't read this compiler's profiles.
profdata=
for candidate in "$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata" \
  llvm-profdata-{22,21,20,19}; do
  if [[ -z $profdata ]] && command -v "$candidate" >/dev/null; then profdata=$candidate; fi
done
if [[ -z $profdata ]]; then
  [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null ||
    fail "llvm-profdata is missing: rustup component add llvm-tools, or install llvm-19"
  echo "release: installing llvm-19" >&2
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq llvm-19 >/dev/null ||
    fail "could not install llvm-19"
  profdata=llvm-profdata-19
fi

scripts/web.sh
mkdir -p "$out"
out=$(realpath "$out")

# Compiles into the folder $1 with the other arguments as flags. With an explicit target, since the flags
# then do not apply to build scripts.
build() {
  local folder=$1 IFS=$'\x1f'
  shift
  CARGO_TARGET_DIR=$folder CARGO_ENCODED_RUSTFLAGS=$* cargo build --release --target "$host" \
    --package greenroom --package greenroom-bench --package greenroom-market
}

rm -rf "$out/profiles" "$out/optimised"
build "$out/instrumented" "-Cprofile-generate=$out/profiles"
instrumented=$out/instrumented/$host/release
"$instrumented/greenroom-bench" train
MARKET_COMMAND=$instrumented/greenroom-market \
  "$instrumented/greenroom" eval examples/evaluation/market.toml --config examples/greenroom.toml
"$profdata" merge --output "$out/profile" "$out"/profiles/*.profraw

LLVM_PROFILE_FILE=$out/profiles/start-%m.profraw "$instrumented/greenroom-bench" train --start-only
"$profdata" merge --output "$out/start" "$out"/profiles/start-*.profraw

# The order of the functions: those used at a start first, then all others that ran. An idle process then
# occupies few pages besides the first ones.
for profile in "$out/start" "$out/profile"; do
  "$profdata" show --all-functions --counts "$profile" | awk '
    /^  [^ ].*:$/ { name = $1; sub(/:$/, "", name); sub(/^.*;/, "", name) }
    /Block counts:.*[1-9]/ { print name }'
done | awk '!seen[$0]++' >"$out/order"

# The folder must be empty: cargo does not detect a changed profile.
linker=-Clink-arg=-Wl
build "$out/optimised" "-Cprofile-use=$out/profile" \
  "$linker,--symbol-ordering-file=$out/order" "$linker,--no-warn-symbol-ordering"
mv "$out/optimised/$host/release/greenroom"{,-bench} "$out/"
rm -rf "$out/optimised" "$out/profiles"
