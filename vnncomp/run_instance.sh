#!/usr/bin/env bash
# run_instance.sh v1 CATEGORY ONNX VNNLIB RESULT_FILE TIMEOUT: writes sat, unsat, unknown or timeout
# into the result file, and the witness of a sat.  ONNX is a file, or a list [("f", "FILE"), ...] if
# the query declares several networks.  Another exit code than 0 means that something is wrong
# with the files or the tool, which a line on stderr tells; the result file then says unknown.
set -eu
# The limit is for the whole script, so its clock starts here.
STARTED=${EPOCHREALTIME:-$(date +%s)}
# shellcheck source-path=SCRIPTDIR source=tool.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/tool.sh"

expect 6 'run_instance.sh v1 CATEGORY ONNX VNNLIB RESULT_FILE TIMEOUT' "$@"

# At once, so that there is a valid file whatever happens to us.
printf 'unknown\n' >"$5" || fail "$5: cannot be written"
need_python

# By this prepare_instance.sh knows what is ours.
export BNNCERT_VNNCOMP_HOME=$TOOL
# In some languages the clock has a decimal comma.
bnncert vnncomp-instance -- "$3" "$4" "$5" "$6" "${STARTED/,/.}"
