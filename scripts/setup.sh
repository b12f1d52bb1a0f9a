#!/usr/bin/env bash
# Makes .venv hold the locked versions and the package itself (editable). Does nothing if it already does.
#
# The stamp is written last, so an interrupted set-up is taken up again; it is older than pyproject.toml or the
# lock as soon as one of them changes. An environment that runs is kept and brought up to date; one that does
# not, was made for another folder or another PYTHON=... is made anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=.venv
STAMP=$VENV/.anabranch-setup
LOCK=requirements.lock

say() { printf 'anabranch: %s\n' "$*" >&2; }
version() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' </dev/null 2>/dev/null; }

# Settings meant for other installations would send the packages elsewhere.
unset PIP_TARGET PIP_PREFIX PIP_USER PYTHONHOME PYTHONPATH

# The scripts of an environment that was copied or moved with the project run the code of the old place;
# its activate script tells which place that is.
is_usable() {
  [ -x "$VENV/bin/python" ] && grep -qF "$PWD/$VENV" "$VENV/bin/activate" 2>/dev/null || return 1
  "$VENV/bin/python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' </dev/null >/dev/null 2>&1 || return 1
  [ -z "${PYTHON:-}" ] || [ "$(version "$PYTHON")" = "$(version "$VENV/bin/python")" ]
}

is_fresh() { [ "$STAMP" -nt pyproject.toml ] && [ "$STAMP" -nt "$LOCK" ]; }

if is_usable; then
  if is_fresh; then
    say "$VENV is up to date (Python $(version $VENV/bin/python))"
    exit 0
  fi
else
  python=$(bash scripts/preflight.sh python)
  say "making $VENV with $python ($(version "$python"))"
  "$python" -m venv --clear "$VENV" </dev/null >&2
fi

rm -f "$STAMP"
say "installing the locked versions into $VENV; the first time this downloads several hundred MB, most of it Spark"
quiet=--quiet
if [ -t 2 ]; then quiet=; fi
pip() { "$VENV/bin/python" -m pip install ${quiet:+"$quiet"} --no-input --disable-pip-version-check "$@" </dev/null >&2; }
# The lock names everything, so nothing has to be resolved; and of a few hundred MB of modules most are never imported.
pip --no-deps --no-compile --requirement "$LOCK"
# The build backend is among the locked versions, so this step needs no network.
pip --no-deps --no-build-isolation --editable .
touch "$STAMP"
say "$VENV is ready (Python $(version $VENV/bin/python))"
