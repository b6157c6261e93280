#!/usr/bin/env bash
# Builds the dashboard into web/dist, from where the server takes it. Does nothing when it is up to
# date; without npm it says so, and the server does without.
set -euo pipefail
cd "$(dirname "$0")/../web"

if ! command -v npm >/dev/null; then
  echo "web: npm is missing, so there will be no dashboard; everything else works" >&2
  exit 0
fi

if [[ ! node_modules/.package-lock.json -nt package-lock.json ]]; then
  npm ci --no-audit --no-fund --loglevel=error >&2
fi

if [[ -f dist/index.html && -z $(find src index.html package.json package-lock.json vite.config.ts tsconfig.json -newer dist/index.html -print -quit) ]]; then
  exit 0
fi
npm run --silent build >&2
