#!/usr/bin/env bash
# Builds the dashboard into web/dist, from which the server embeds it. Does nothing if it is up to date.
# Without npm it prints a warning, and the server has no dashboard.
set -euo pipefail
cd "$(dirname "$0")/../web"

if ! command -v npm >/dev/null; then
  echo "web: npm is missing: building without the dashboard" >&2
  exit 0
fi

if [[ ! node_modules/.package-lock.json -nt package-lock.json ]]; then
  npm ci --no-audit --no-fund --loglevel=error >&2
fi

if [[ -f dist/index.html && -z $(find src index.html package.json package-lock.json vite.config.ts tsconfig.json -newer dist/index.html -print -quit) ]]; then
  exit 0
fi
npm run --silent build >&2
