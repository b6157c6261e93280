#!/usr/bin/env bash
# Builds the server to be deployed: made for what it does most. A first build notes which of its code
# runs while the benchmark and the tour's evaluation work it; the second one is made by that profile,
# and what ran lies together in the binary. Two optimised builds, 25 minutes on two cores; they land in
# target/guided. Does nothing when that is up to date.
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
  fail "is for x86_64-unknown-linux-gnu, not $host; cargo build --release makes a plain one"

# The toolchain's own, by `rustup component add llvm-tools`, or the system's; older ones can't read
# what this compiler notes.
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

# Compiles into the folder $1, with the rest as flags. For a named target, so that build scripts are
# compiled without them.
build() {
  local folder=$1 IFS=$'\x1f'
  shift
  CARGO_TARGET_DIR=$folder CARGO_ENCODED_RUSTFLAGS=$* cargo build --release --target "$host" \
    --package greenroom --package greenroom-bench --package greenroom-market
}

rm -rf "$out/notes" "$out/made"
build "$out/noting" "-Cprofile-generate=$out/notes"
noting=$out/noting/$host/release
"$noting/greenroom-bench" train
MARKET_COMMAND=$noting/greenroom-market \
  "$noting/greenroom" eval examples/evaluation/market.toml --config examples/greenroom.toml
"$profdata" merge --output "$out/profile" "$out"/notes/*.profraw

LLVM_PROFILE_FILE=$out/notes/start-%m.profraw "$noting/greenroom-bench" train --start-only
"$profdata" merge --output "$out/start" "$out"/notes/start-*.profraw

# What runs at a start lies first, then what else has run: a process that waits for work occupies few
# pages besides the first ones.
for profile in "$out/start" "$out/profile"; do
  "$profdata" show --all-functions --counts "$profile" | awk '
    /^  [^ ].*:$/ { name = $1; sub(/:$/, "", name); sub(/^.*;/, "", name) }
    /Block counts:.*[1-9]/ { print name }'
done | awk '!seen[$0]++' >"$out/order"

# Into an empty folder: cargo does not look into a profile, to see whether it is another one.
linker=-Clink-arg=-Wl
build "$out/made" "-Cprofile-use=$out/profile" \
  "$linker,--symbol-ordering-file=$out/order" "$linker,--no-warn-symbol-ordering"
mv "$out/made/$host/release/greenroom"{,-bench} "$out/"
rm -rf "$out/made" "$out/notes"
