#!/bin/sh
# Calls the component that `toolcell tool build` wrote.
set -eu
cd "$(dirname "$0")"

# Expects the result of a call, or its error.
expect() {
  seen=$(toolcell call {{name}}.wasm "$1" 2>&1) || true
  case $seen in
  *"$2"*) ;;
  *) echo "$1 gave $seen, not $2" >&2 && exit 1 ;;
  esac
}

expect '{"dividend": 7, "divisor": 2}' '3.5'
expect '{"dividend": 7, "divisor": 2, "remainder": true}' '3 remainder 1'
expect '{"dividend": 7, "divisor": 0}' '`divisor` is zero'
echo "all tests passed"
