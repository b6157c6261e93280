#!/usr/bin/env bash
# Installs what the tests talk to: PostgreSQL, SQLite's shell, the providers' Python SDKs, real MCP servers,
# what the schema suite of the gateway is built with, what tries the HTTP API against its document, and a
# browser. Lands under target/test-deps, the suites' own beside them; quick when it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

python_packages=(anthropic==2.12.0 openai==3.54.0 mcp-server-time==2026.10.19
  schemathesis==4.32.5)
npm_packages=(@modelcontextprotocol/server-everything@2026.8.31)

deps=target/test-deps

fail() {
  echo "test-deps: $1" >&2
  exit 1
}

# Installs Debian packages when that is possible here, else says what to install.
need() {
  local what=$1
  shift
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "test-deps: installing $*" >&2
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null ||
      fail "could not install $* for $what"
  else
    fail "$what is missing: install $*"
  fi
}

command -v npm >/dev/null || need npm nodejs npm
# The server's programs alone: tests start a private one. Debian keeps them out of the path.
command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null ||
  need PostgreSQL postgresql
# What docs/storage.md saves a damaged file with.
command -v sqlite3 >/dev/null || need "SQLite's shell" sqlite3

# These suites have their own versions, and npm's own note of what is installed.
for suite in tests/gateway-zod tests/browser; do
  if [[ ! $suite/node_modules/.package-lock.json -nt $suite/package-lock.json ]]; then
    npm ci --prefix "$suite" --no-audit --no-fund --loglevel=error >&2 ||
      fail "could not install what $suite needs"
  fi
done

# The browser that the dashboard is tested in; CHROMIUM names another.
[[ -x ${CHROMIUM:-/usr/bin/chromium} ]] || need "a browser" chromium

stamp=$deps/installed
wanted="${python_packages[*]} ${npm_packages[*]}"
if [[ -f $stamp && $(<"$stamp") == "$wanted" && -x $deps/venv/bin/python ]]; then
  exit 0
fi

command -v python3 >/dev/null && python3 -c 'import venv, ensurepip' 2>/dev/null ||
  need "python3 with venv" python3 python3-venv

mkdir -p "$deps/npm"
rm -f "$stamp"
[[ -x $deps/venv/bin/pip ]] || python3 -m venv --clear "$deps/venv" ||
  fail "could not create a Python environment in $deps/venv"
"$deps/venv/bin/python" -m pip install -q --disable-pip-version-check "${python_packages[@]}" ||
  fail "could not install ${python_packages[*]}"
npm install --prefix "$deps/npm" --no-audit --no-fund --loglevel=error "${npm_packages[@]}" >&2 ||
  fail "could not install ${npm_packages[*]}"
echo "$wanted" >"$stamp"
