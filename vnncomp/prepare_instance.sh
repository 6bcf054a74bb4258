#!/usr/bin/env bash
# prepare_instance.sh v1 CATEGORY ONNX VNNLIB: ends what an earlier run has left behind, then finds
# out whether model and query can be read and are supported, and says on stderr if they are not.  The
# exit code is 0 all the same: after another one the competition skips the rest of the category.
set -eu
# shellcheck source-path=SCRIPTDIR source=tool.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/tool.sh"

expect 4 'prepare_instance.sh v1 CATEGORY ONNX VNNLIB' "$@"
need_python

# Kills the processes that run_instance.sh of this very folder has started: they are run by our
# interpreter and carry the mark that it has put into their environment.
end_leftovers() {
    local process pid first
    for process in /proc/[0-9]*; do
        pid=${process#/proc/}
        first=
        { IFS= read -r -d '' first <"$process/cmdline"; } 2>/dev/null || continue
        [ "$first" = "$PYTHON" ] || continue
        if { tr '\0' '\n' <"$process/environ" | grep -Fxq -- "BNNCERT_VNNCOMP_HOME=$TOOL"; } 2>/dev/null
        then
            kill -KILL "$pid" 2>/dev/null || true
        fi
    done
}

end_leftovers
bnncert vnncomp-prepare -- "$3" "$4" || true
