#!/bin/sh
# Starts the LangGraph peer: start.sh PORT PROVIDER_URL. Creates its virtual environment first.
set -eu
cd "$(dirname "$0")"
if [ ! -x .venv/bin/uvicorn ]; then
    python3 -m venv .venv
    .venv/bin/pip install --quiet --requirement requirements.txt >&2
fi
exec .venv/bin/python server.py "$1" "$2"
