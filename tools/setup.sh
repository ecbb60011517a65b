#!/bin/sh
# Make $VENV and install this checkout in it, editable, at the exact versions of constraints/cpu.txt.
#
# Without an NVIDIA driver torch must be a CPU build, not gigabytes of CUDA: PyTorch's own CPU index
# is asked first; where it cannot be reached, the plain pin is (some machines resolve it to a CPU build).
set -eu
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
pip="$VENV/bin/python -m pip --disable-pip-version-check"
torch=$(grep -E '^torch==' constraints/cpu.txt)

if ! "$VENV/bin/python" -c 'import torch' 2>/dev/null; then
    if [ -e /proc/driver/nvidia/version ]; then
        $pip install -q "$torch"
    else
        $pip install -q --retries 0 --timeout 15 "$torch" \
            --index-url https://download.pytorch.org/whl/cpu \
            || $pip install -q "$torch"
    fi
fi
$pip install -q -c constraints/cpu.txt -e '.[dev]'
