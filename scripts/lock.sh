#!/usr/bin/env bash
# Writes requirements.lock: the exact versions behind `make setup`, one file for every Python and platform we support.
# Run through `make lock` after a change of the dependencies in pyproject.toml; `make lock ARGS=--upgrade` takes the newest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

UV_VERSION=0.13.7 # needed here only, so it is not part of the lock
UV=.venv/bin/uv
if ! "$UV" --version 2>/dev/null | grep -qF "uv $UV_VERSION "; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
fi

# The file must not tell where this machine gets its packages from: no index, no links, no paths.
# "fewest": one version of a package for all Pythons, so that all of them are tested with the same.
"$UV" pip compile pyproject.toml --extra bench --extra dev \
  --universal --python-version 3.11 --fork-strategy fewest \
  --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
  --quiet --output-file requirements.lock "$@" >/dev/null

{
  echo "# Written by \`make lock\` from pyproject.toml (extras bench and dev). Do not edit by hand."
  cat requirements.lock
} >requirements.lock.new
mv requirements.lock.new requirements.lock
