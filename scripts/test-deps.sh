#!/usr/bin/env bash
# Installs the dependencies of the tests: PostgreSQL, SQLite's shell, the shells of the tour, the providers'
# Python SDKs, MCP servers, the packages of the gateway's schema suite, Schemathesis for the HTTP API, and a
# browser.
# Installs into target/test-deps and into the folders of the suites. Fast if everything is installed.
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

# Installs Debian packages if possible; otherwise fails with the names of the packages.
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
# Only the server's programs: the tests start a private server. Debian does not add them to the PATH.
command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null ||
  need PostgreSQL postgresql
# Used by docs/storage.md to recover a damaged file.
command -v sqlite3 >/dev/null || need "SQLite's shell" sqlite3

# The tour (docs/tour.md) is run in each of these shells.
for tool in dash zsh curl; do
  command -v "$tool" >/dev/null || need "$tool" "$tool"
done

# These suites pin their own versions. npm records the installed packages in `.package-lock.json`.
for suite in tests/gateway-zod tests/browser; do
  if [[ ! $suite/node_modules/.package-lock.json -nt $suite/package-lock.json ]]; then
    npm ci --prefix "$suite" --no-audit --no-fund --loglevel=error >&2 ||
      fail "could not install the packages of $suite"
  fi
done

# The browser for the dashboard tests; CHROMIUM sets another path.
[[ -x ${CHROMIUM:-/usr/bin/chromium} ]] || need "a browser" chromium

stamp=$deps/installed
expected="${python_packages[*]} ${npm_packages[*]}"
if [[ -f $stamp && $(<"$stamp") == "$expected" && -x $deps/venv/bin/python ]]; then
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
echo "$expected" >"$stamp"
