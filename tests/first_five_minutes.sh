#!/usr/bin/env bash
# A new user's first five minutes: clone, demo, an own image, a counterexample, a certificate, a report.
#
#   tests/first_five_minutes.sh [FOLDER [REPOSITORY]]
#
# clones the repository (default: this one) into FOLDER/bnncert (default: a temporary folder), and needs nothing but
# git, make, Python >= 3.10 and what pip downloads.  With VENV=PATH the commands use that environment instead.
set -euo pipefail
folder=$(realpath "${1:-$(mktemp -d)}")
repository=$(realpath "${2:-$(dirname "$0")/..}")

git clone --quiet "$repository" "$folder/bnncert"
cd "$folder/bnncert"
make demo VENV="${VENV:=$PWD/.venv}"
export PATH="$VENV/bin:$PATH"

# An own image: a PNG file of 28 x 28 grey pixels.
cp docs/examples/seven.png own.png
bnncert verify demo:sparse own.png --radius 0.5px --timeout 60 --certificate own.bnncert
bnncert check own.bnncert --model demo:sparse

# How far can it be trusted?  The counterexample is a picture, and the exit code of "not robust" is 1.
code=0
bnncert verify demo:sparse own.png --radius 12px --timeout 60 --save-counterexample counterexample.png || code=$?
[ "$code" -eq 1 ]

# Ten images, and a page of what was found.
bnncert run demo:sparse --data demo --count 10 --radius 0.1px,0.25px --timeout 10 --out results.sqlite
bnncert report results.sqlite -o report.html
