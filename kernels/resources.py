"""What every kernel asks of a device, found by compiling it without one.

    python -m flowgraph.kernels.resources            write the table, kernels/RESOURCES.md
    python -m flowgraph.kernels.resources --check    fail on drift and on a broken limit

Limits: no spills, no local memory, at most 128 registers a thread (512 threads stay resident on a
multiprocessor), widest loads and stores as wide as the variant states. Exit status 1 on any.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowgraph.kernels.device.variant import Variant

TABLE = Path(__file__).resolve().parent / "RESOURCES.md"
KERNELS = ("pack", "rows", "merge", "logprobs", "segments", "flat")
REGISTER_LIMIT = 128
TARGETS = {
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "gfx942": ("hip", "gfx942", 64),
}
PTX_WIDTH = re.compile(r"^\s*(?:@!?%p\d+\s+)?(ld|st)\.global((?:\.\w+(?:::\w+)?)*)", re.MULTILINE)
GCN_ACCESS = re.compile(r"\b(?:global|buffer|flat)_(load|store)_(\w+)")
GCN_BYTES = {
    "ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2, "dword": 4,
    "dwordx2": 8, "dwordx3": 12, "dwordx4": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """One row of the table: what one variant takes on one target."""

    kernel: str
    variant: str
    target: str
    registers: int  # a thread (NVIDIA) or vector registers a lane (AMD)
    shared: int  # bytes a program
    spills: int  # registers
    local: int  # bytes of local (scratch) memory a thread
    load: int  # bytes of the widest global load
    store: int  # bytes of the widest global store
    asked: tuple[int, int]  # bytes that these must reach, 0 where nothing is asked

    def faults(self) -> list[str]:
        """Sentences for every limit that it breaks."""
        name = f"{self.kernel} ({self.variant}) on {self.target}"
        found = []
        if self.spills or self.local:
            found.append(f"{name}: {self.spills} registers spilled, {self.local} bytes local")
        if self.registers > REGISTER_LIMIT:
            found.append(f"{name}: {self.registers} registers, limit {REGISTER_LIMIT}")
        if self.load < self.asked[0] or self.store < self.asked[1]:
            found.append(
                f"{name}: loads {self.load} and stores {self.store} bytes at once, "
                f"expects {self.asked[0]} and {self.asked[1]}"
            )
        return found


def variants(kernels: Iterable[str] = KERNELS) -> list[Variant]:
    """Every variant of the named kernel files. Imports Triton.

    Raises RuntimeError where Triton is set to interpret: it then cannot compile.
    """
    if os.environ.get("TRITON_INTERPRET") == "1":
        raise RuntimeError("TRITON_INTERPRET=1 is set: Triton interprets and cannot compile")
    modules = [importlib.import_module(f"flowgraph.kernels.device.{name}") for name in kernels]
    return [variant for module in modules for variant in module.VARIANTS]


def measure(variant: Variant, target: str) -> Resources:
    """Compiles one variant for one of `TARGETS` and reads what it takes."""
    compiled = _compile(variant, target)
    read = _read_amd if TARGETS[target][0] == "hip" else _read_nvidia
    return Resources(
        kernel=variant.kernel.fn.__name__,
        variant=variant.label,
        target=target,
        asked=(variant.load, variant.store),
        **read(compiled),
    )


def _compile(variant: Variant, target: str) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = variant.kernel.arg_names
    # constexprs stand in the signature too, in the order of the arguments
    signature = {name: variant.signature.get(name, "constexpr") for name in names}
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in variant.aligned}
    source = ASTSource(
        variant.kernel, signature=signature, constexprs=dict(variant.constexprs), attrs=attributes
    )
    return triton.compile(
        source, target=GPUTarget(*TARGETS[target]), options={"num_warps": variant.warps}
    )


def _read_nvidia(compiled: Any) -> dict[str, int]:
    import triton.backends.nvidia

    tool = Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        command = [str(tool), "-res-usage", cubin.name]
        usage = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    figures = {name: int(value) for name, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", usage)}
    widths: dict[str, list[int]] = {"ld": [0], "st": [0]}
    for kind, modifiers in PTX_WIDTH.findall(compiled.asm["ptx"]):
        vector = re.search(r"\.v(\d)", modifiers)
        bits = re.search(r"\.[busf](8|16|32|64|128)\b", modifiers)
        if bits:
            widths[kind].append(int(bits[1]) // 8 * (int(vector[1]) if vector else 1))
    return {
        "registers": figures["REG"],
        "shared": compiled.metadata.shared,
        "spills": 0 if not figures["LOCAL"] else figures["LOCAL"] // 4,
        "local": figures["STACK"] + figures["LOCAL"],
        "load": max(widths["ld"]),
        "store": max(widths["st"]),
    }


def _read_amd(compiled: Any) -> dict[str, int]:
    text = compiled.asm["amdgcn"]
    widths: dict[str, list[int]] = {"load": [0], "store": [0]}
    for kind, name in GCN_ACCESS.findall(text):
        widths[kind].append(GCN_BYTES.get(name.split("_")[0], 0))
    return {
        "registers": _note(text, "vgpr_count"),
        "shared": compiled.metadata.shared,
        "spills": _note(text, "vgpr_spill_count") + _note(text, "sgpr_spill_count"),
        "local": _note(text, "private_segment_fixed_size"),
        "load": max(widths["load"]),
        "store": max(widths["store"]),
    }


def _note(text: str, name: str) -> int:
    found = re.search(rf"\.{name}:\s*(\d+)", text)
    if found is None:
        raise ValueError(f"the code object has no note .{name}")
    return int(found[1])


def table(rows: Sequence[Resources]) -> str:
    """The table as Markdown, one line a variant and target."""
    import triton

    lines = [
        "# What the kernels take",
        "",
        "Made by `python -m flowgraph.kernels.resources` with Triton "
        f"{triton.__version__}, which compiles without a device; `--check` fails on drift.",
        f"Limits: no spills, no local memory, {REGISTER_LIMIT} registers, widest load and store "
        "at least `asked` bytes (0: nothing asked).",
        "",
        "| kernel | variant | target | registers | shared B | spills | local B | load B | store B "
        "| asked |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    lines += [
        f"| {row.kernel} | {row.variant} | {row.target} | {row.registers} | {row.shared} "
        f"| {row.spills} | {row.local} | {row.load} | {row.store} "
        f"| {row.asked[0]} / {row.asked[1]} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def problems(rows: Sequence[Resources], committed: str | None = None) -> list[str]:
    """Every broken limit, and, where `committed` is given, that the table differs from it.

    Another version of Triton allots other registers: against a table of another version only the
    limits count.
    """
    found = [fault for row in rows for fault in row.faults()]
    if committed is not None and committed != (text := table(rows)):
        versions = [re.findall(r"Triton \d[\w.+]*", content) for content in (committed, text)]
        if not versions[0] or versions[0] == versions[1]:
            found.append(f"{TABLE.name} differs from what was compiled; run without --check")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args(arguments)
    rows = [measure(variant, target) for variant in variants() for target in TARGETS]
    if options.check:
        faults = problems(rows, TABLE.read_text() if TABLE.exists() else "")
    else:
        faults = problems(rows)
        TABLE.write_text(table(rows))
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
