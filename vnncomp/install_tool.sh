#!/usr/bin/env bash
# install_tool.sh v1: installs the tool into .venv in its own folder, which is reused if it is there.
# Needs nothing but python3 >= 3.10 and access to a package index.
set -eu
# shellcheck source-path=SCRIPTDIR source=tool.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/tool.sh"

expect 1 'install_tool.sh v1' "$@"

if [ -n "${BNNCERT_PYTHON:-}" ]; then
    need_python
fi
# `python -m` and `python -c` look for modules here first.
cd -- "$TOOL"
if [ -z "${BNNCERT_PYTHON:-}" ]; then
    if [ ! -x "$PYTHON" ]; then
        python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
            fail 'needs python3 >= 3.10'
        python3 -m venv "$TOOL/.venv" ||
            fail 'python3 -m venv failed (on Debian and Ubuntu it needs the package python3-venv)'
    fi
    "$PYTHON" -m pip install --quiet --disable-pip-version-check -e "${TOOL}[replay,vnnlib]" ||
        fail 'pip could not install the packages'
fi
bnncert --help >/dev/null || fail 'the installed tool does not start'
"$PYTHON" -c 'import onnxruntime' || fail 'onnxruntime is not installed'
# The package that reads VNN-LIB 2.0; before 1.0 the name belonged to another one.
"$PYTHON" -c 'from vnnlib import parse_query_string' || fail 'vnnlib >= 1.0 is not installed'
