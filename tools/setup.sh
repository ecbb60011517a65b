#!/bin/sh
# Make $VENV and install this checkout in it, editable, at the exact versions of constraints/cpu.txt.
# Can be run again at any time: what an interrupted run left half made is finished or made anew.
#
# Without an NVIDIA driver torch must be a CPU build, not gigabytes of CUDA: PyTorch's own CPU index
# is asked first; where it cannot be reached, the plain pin is (some machines resolve it to a CPU
# build, others would fetch CUDA's).
set -eu
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}
CPU_INDEX=https://download.pytorch.org/whl/cpu

say() { echo "setup: $*"; }

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    say "$PYTHON is older than Python 3.11: make setup PYTHON=python3.12, for instance" >&2
    exit 1
}
if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
    say "making $VENV"
    "$PYTHON" -m venv --clear "$VENV"
fi

# -qq: no progress and no notices; errors are printed.
install() { "$VENV/bin/python" -m pip install -qq --disable-pip-version-check -c constraints/cpu.txt "$@"; }

torch=$(grep -E '^torch==' constraints/cpu.txt)
if ! "$VENV/bin/python" -c "
from importlib.metadata import version
import sys, torch
sys.exit(version('torch').split('+')[0] != '${torch#torch==}')" 2>/dev/null; then
    say "installing $torch, the largest part (minutes)"
    if [ -e /proc/driver/nvidia/version ]; then
        install "$torch"
    elif ! tried=$(install --retries 0 --timeout 15 --index-url "$CPU_INDEX" "$torch" 2>&1); then
        say "$CPU_INDEX cannot be used here (${tried##*ERROR: }); asking the default index"
        install "$torch"
    fi
fi
# No build isolation: this checkout is built by the pinned setuptools, and nothing else is fetched.
say "installing this checkout and what it needs"
install setuptools wheel
install --no-build-isolation -e '.[dev]'
say "done: $("$VENV/bin/python" -c 'import sys, torch; print(f"Python {sys.version.split()[0]}, torch {torch.__version__}")')"
