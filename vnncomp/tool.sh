# shellcheck shell=bash
# What the three scripts have in common; they source it.
#
# BNNCERT_PYTHON may name a Python interpreter to use instead of the tool's own .venv.  It must have
# the packages that bnncert needs; the code is always that in the tool's folder.

TOOL=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
PYTHON=${BNNCERT_PYTHON:-$TOOL/.venv/bin/python}

# Says what is wrong in one line and ends.
fail() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    exit 1
}

# expect COUNT USAGE ARGUMENTS...: ends unless there are COUNT arguments and the first is v1.
expect() {
    local count=$1 usage=$2
    shift 2
    [ "$#" -ge 1 ] || fail "no arguments; usage: $usage"
    [ "$1" = v1 ] || fail "version is '$1', expected v1; usage: $usage"
    [ "$#" -eq "$count" ] || fail "$# arguments, expected $count; usage: $usage"
}

need_python() {
    PYTHON=$(command -v -- "$PYTHON") || fail "no interpreter ${BNNCERT_PYTHON:-in .venv}; run install_tool.sh v1 first"
}

# The launcher leaves the working directory out of the search path: it may hold anything.
LAUNCHER='import sys
sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]
from bnncert.__main__ import main
main()'

# bnncert ARGUMENTS...: the command line of this copy of the tool.
bnncert() {
    "$PYTHON" -c "$LAUNCHER" "$TOOL/src" "$@"
}
