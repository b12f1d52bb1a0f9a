#!/usr/bin/env bash
# Finds the Python and the Java that the project runs on, and prints where they are.
#
#   preflight.sh python   the newest Python 3.11+ that can make a virtual environment (PYTHON=... overrides)
#   preflight.sh java     the home of a Java 17+: JAVA_HOME's, else the one on PATH, else one in the usual places
#
# What is missing is installed if we are root on Debian or Ubuntu; elsewhere one sentence says what to do.
# The answer goes to stdout, everything else to stderr. Keeps to bash 3.2, which is what macOS has.
set -euo pipefail

OLDEST_PYTHON=311 # 3.11, written as 100 * major + minor
NEWEST_PYTHON=314 # the newest that all locked packages have wheels for; a newer one is the last choice
OLDEST_JAVA=17

say() { printf 'anabranch: %s\n' "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

# ------------------------------------------------------------------------------------------- packages

has_apt() { [ -e /etc/debian_version ] && command -v apt-get >/dev/null; }
may_install() { has_apt && [ "$(id -u)" = 0 ]; }

apt_knows() { apt-cache show "$1" >/dev/null 2>&1; }

apt_update() {
  # A repository that cannot be reached need not be the one we install from: go on, apt-get install will tell.
  apt-get -qq update </dev/null >&2 || say "apt-get update failed; trying with the package lists at hand"
}

apt_install() {
  say "installing $* with apt-get"
  DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends "$@" </dev/null >&2 ||
    fail "apt-get could not install $* (its message is above); install it by hand, then run make again"
  hash -r
}

# --------------------------------------------------------------------------------------------- python

# Prints the version as a number (3.11 is 311); fails if there is no such program or it does not run, as a
# pyenv shim of a version that is not selected.
python_version() { "$1" -c 'import sys; print(100 * sys.version_info[0] + sys.version_info[1])' </dev/null 2>/dev/null; }

# Debian packs venv's other half, ensurepip, separately.
python_has_venv() { "$1" -c 'import ensurepip, venv' </dev/null >/dev/null 2>&1; }

# The interpreter behind shims and activated environments, which may be the .venv about to be rebuilt.
python_path() { "$1" -c 'import sys; print(getattr(sys, "_base_executable", None) or sys.executable)' </dev/null; }

dotted() { echo "$(($1 / 100)).$(($1 % 100))"; }

# Sets `python` to the best interpreter, or leaves it empty and sets `venvless` to the version of the best one
# that only lacks venv, and `too_old` to the newest version seen that is too old.
find_python() {
  local candidate version rank best=0
  python="" venvless="" too_old=""
  for candidate in python3.14 python3.13 python3.12 python3.11 python3 python /usr/bin/python3; do
    version=$(python_version "$candidate") || continue
    if [ "$version" -lt "$OLDEST_PYTHON" ]; then
      if [ "$version" -gt "${too_old:-0}" ]; then too_old=$version; fi
    elif ! python_has_venv "$candidate"; then
      venvless=${venvless:-$version}
    else
      rank=$version
      if [ "$version" -gt "$NEWEST_PYTHON" ]; then rank=1; fi
      if [ "$rank" -gt "$best" ]; then best=$rank python=$candidate; fi
    fi
  done
}

# The Debian packages that bring a Python new enough, or the missing venv; nothing if the release has none.
apt_python() {
  local candidate minor
  if [ -n "$venvless" ] && apt_knows "python$(dotted "$venvless")-venv"; then
    echo "python$(dotted "$venvless")-venv"
    return
  fi
  candidate=$(apt-cache policy python3 2>/dev/null | sed -n 's/^ *Candidate: 3\.\([0-9]*\).*/\1/p')
  # No candidate means that apt-get has not been updated yet: assume the release is a recent one.
  if [ -z "$candidate" ] || [ "$((300 + candidate))" -ge "$OLDEST_PYTHON" ]; then
    echo "python3 python3-venv"
    return
  fi
  for minor in 14 13 12 11; do
    if apt_knows "python3.$minor-venv"; then
      echo "python3.$minor python3.$minor-venv"
      return
    fi
  done
}

python_remedy() {
  local packages
  if has_apt; then
    packages=$(apt_python)
    if [ -n "$packages" ]; then
      echo "run: sudo apt-get install $packages"
      return
    fi
  elif command -v brew >/dev/null; then
    echo "run: brew install python@3.13"
    return
  elif command -v dnf >/dev/null; then
    echo "run: sudo dnf install python3.12"
    return
  fi
  echo "install it from python.org, then run make PYTHON=/path/to/python3.13"
}

chosen_python() {
  local version
  version=$(python_version "$PYTHON") || fail "PYTHON=$PYTHON does not run; set it to a Python $(dotted $OLDEST_PYTHON) or newer, or leave it unset"
  [ "$version" -ge "$OLDEST_PYTHON" ] ||
    fail "PYTHON=$PYTHON is Python $(dotted "$version"), but Anabranch needs $(dotted $OLDEST_PYTHON) or newer; set it to a newer one, or leave it unset"
  python_has_venv "$PYTHON" ||
    fail "PYTHON=$PYTHON lacks the venv module; install it (Debian/Ubuntu: sudo apt-get install python$(dotted "$version")-venv), or leave PYTHON unset"
  python_path "$PYTHON"
}

any_python() {
  local packages
  find_python
  if [ -z "$python" ] && may_install; then
    apt_update
    packages=$(apt_python)
    # shellcheck disable=SC2086  # a list of package names
    if [ -n "$packages" ]; then apt_install $packages; fi
    find_python
  fi
  if [ -n "$python" ]; then
    python_path "$python"
  elif [ -n "$venvless" ]; then
    fail "Python $(dotted "$venvless") is here, but without its venv module; $(python_remedy)"
  elif [ -n "$too_old" ]; then
    fail "Anabranch needs Python $(dotted $OLDEST_PYTHON) or newer, and the newest here is $(dotted "$too_old"); $(python_remedy)"
  else
    fail "Anabranch needs Python $(dotted $OLDEST_PYTHON) or newer, and there is none here; $(python_remedy)"
  fi
}

# ----------------------------------------------------------------------------------------------- java

# Sets `home` to the home of the first Java new enough, or leaves it empty and sets `old_java` to a version seen.
find_java() {
  local candidate settings version
  home="" old_java=""
  for candidate in "${JAVA_HOME:-}/bin/java" "$(command -v java || true)" \
    "$(/usr/libexec/java_home -v "$OLDEST_JAVA+" 2>/dev/null || true)/bin/java" \
    /usr/lib/jvm/*/bin/java /opt/java/*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java \
    /opt/homebrew/opt/openjdk*/bin/java /usr/local/opt/openjdk*/bin/java "${HOME:-}"/.sdkman/candidates/java/*/bin/java; do
    if [ ! -x "$candidate" ] || [ -d "$candidate" ]; then continue; fi
    settings=$("$candidate" -XshowSettings:properties -version </dev/null 2>&1) || continue
    version=$(sed -n 's/^ *java\.specification\.version = //p' <<<"$settings")
    version=${version#1.} # Java 8 calls itself 1.8
    case $version in "" | *[!0-9]*) continue ;; esac
    if [ "$version" -ge "$OLDEST_JAVA" ]; then
      home=$(sed -n 's/^ *java\.home = //p' <<<"$settings")
      return
    fi
    old_java=${old_java:-$version}
  done
}

apt_java() {
  local package
  for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
    if apt_knows "$package"; then
      echo "$package"
      return
    fi
  done
  echo openjdk-17-jre-headless
}

java_remedy() {
  if has_apt; then
    echo "run: sudo apt-get install $(apt_java)"
  elif command -v brew >/dev/null; then
    echo "run: brew install openjdk@17"
  elif command -v dnf >/dev/null; then
    echo "run: sudo dnf install java-17-openjdk-headless || sudo dnf install java-21-openjdk-headless"
  else
    echo "install a JRE from adoptium.net and set JAVA_HOME to its folder"
  fi
}

any_java() {
  find_java
  if [ -z "$home" ] && may_install; then
    apt_update
    apt_install "$(apt_java)" procps # Spark's start scripts call ps
    find_java
  fi
  if [ -z "$home" ]; then
    if [ -n "$old_java" ]; then
      fail "Anabranch needs Java $OLDEST_JAVA or newer, and the one here is Java $old_java; $(java_remedy)"
    fi
    fail "Anabranch needs Java $OLDEST_JAVA or newer, and there is none here; $(java_remedy)"
  fi
  if [ -n "${JAVA_HOME:-}" ] && ! [ "$JAVA_HOME/bin/java" -ef "$home/bin/java" ]; then
    say "JAVA_HOME=$JAVA_HOME holds no Java $OLDEST_JAVA or newer; using $home instead"
  fi
  echo "$home"
}

case "${1:-}" in
python) if [ -n "${PYTHON:-}" ]; then chosen_python; else any_python; fi ;;
java) any_java ;;
*) fail "usage: preflight.sh python|java" ;;
esac
