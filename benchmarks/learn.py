"""`python -m benchmarks.learn`: both examples over several seeds, and a page of what they learned.

Every run is the command that a user would type, one after the other, and leaves its run directory.
With `--runs DIR` of an earlier call, runs that finished there are read, not repeated.
"""

import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parent.parent
NEEDED_GAIN = 0.2
"""Between the first and the last tenth of the steps, each agent's mean reward."""

AGENTS = ("solver", "verifier")
TEAMS = ("trained", "always-accept", "always-reject")
KINDS = ("digit", "parity", "larger", "sum", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run. settings: of the graph's `build`. steps: None for the graph's own number."""

    graph: str
    seed: int
    settings: tuple[str, ...] = ()
    steps: int | None = None

    @property
    def name(self) -> str:
        return "-".join((Path(self.graph).stem, *self.settings, f"seed{self.seed}"))

    @property
    def words(self) -> list[str]:
        """The command's words after `flowgraph`."""
        settings = [*self.settings, f"seed={self.seed}"]
        steps = [] if self.steps is None else ["--steps", str(self.steps)]
        return ["run", self.graph, *(w for s in settings for w in ("--set", s)), *steps]


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run. result: what `--json` prints. evaluations: (name, step) → figures."""

    case: Case
    result: Mapping[str, Any]
    evaluations: Mapping[tuple[str, int], Mapping[str, float]]

    def ends(self, evaluation: str, figure: str) -> tuple[float, float]:
        """The figure before the first step and after the last one."""
        steps = [step for name, step in self.evaluations if name == evaluation]
        first, last = (self.evaluations[evaluation, at(steps)][figure] for at in (min, max))
        return first, last

    def tenths(self, module: str, figure: str) -> tuple[float, float]:
        """Means over the first and the last tenth of the steps."""
        found = self.result["metrics"][module][figure]
        return found["first"], found["last"]


def execute(case: Case, folder: Path) -> Run:
    """The case's run, made now unless it finished in `folder` before. Raises CalledProcessError."""
    made = folder / case.name
    if not (made / "result.json").exists():
        command = [str(Path(sys.executable).with_name("flowgraph")), *case.words]
        print(f"\n$ {shlex.join(['flowgraph', *case.words])}", flush=True)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        subprocess.run(
            [*command, "--run-dir", str(made), "--json"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,  # the object is in result.json as well
            check=True,
        )
    return read_run(case, made)


def read_run(case: Case, folder: Path) -> Run:
    """A run directory's result and every evaluation."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    evaluations = {
        (line["name"], line["step"]): line["figures"]
        for line in lines
        if line["kind"] == "evaluation"
    }
    return Run(case, json.loads((folder / "result.json").read_text()), evaluations)


def agents_figures(run: Run) -> dict[str, tuple[float, float]]:
    """Rewards of each agent by tenths, and the team's with the verdict that it learned or not."""
    rewards = {agent: run.tenths(agent, "reward") for agent in AGENTS}
    return rewards | {f"team, {name}": run.ends(name, "team") for name in TEAMS}


def agents_table(runs: Sequence[Run]) -> list[str]:
    """A row a run, and their mean."""
    figures = [agents_figures(run) for run in runs]
    rows = [
        [str(run.case.seed), *map(_change, found.values()), _wall(run)]
        for run, found in zip(runs, figures, strict=True)
    ]
    means = [_change(_means([found[name] for found in figures])) for name in figures[0]]
    return _table(["seed", *figures[0], "wall time"], [*rows, ["mean", *means, ""]])


def agents_verdict(runs: Sequence[Run]) -> list[str]:
    """Whether the table shows what it should, in words."""
    gains = {
        agent: [last - first for first, last in (run.tenths(agent, "reward") for run in runs)]
        for agent in AGENTS
    }
    least = ", ".join(f"{agent} {min(found):+.2f}" for agent, found in gains.items())
    enough = all(min(found) >= NEEDED_GAIN for found in gains.values())
    team = {name: _means([run.ends(name, "team") for run in runs])[1] for name in TEAMS}
    best = max(team[name] for name in TEAMS[1:])
    return [
        f"- Least gain of an agent over the seeds: {least} "
        f"({'at' if enough else 'NOT at'} least {NEEDED_GAIN} each).",
        f"- The team, in the mean over the seeds, after training: {team['trained']:.3f}; with the "
        f"better of the two constant verdicts: {best:.3f} "
        f"({'it gains by' if team['trained'] > best else 'it does NOT gain by'} its verifier).",
    ]


def digits_table(runs: Sequence[Run]) -> list[str]:
    """Held-out exact match, over all questions and by kind, before and after."""
    rows = []
    for run in runs:
        frozen = "encoder=frozen" in run.case.settings
        figures = [_change(run.ends("held-out", name)) for name in ("exact_match", *KINDS)]
        encoder = "frozen as initialised" if frozen else "trained"
        rows.append([str(run.case.seed), encoder, *figures, _wall(run)])
    return _table(["seed", "encoder", "all questions", *KINDS, "wall time"], rows)


def page(marl: Sequence[Run], digits: Sequence[Run], command: str) -> str:
    """The page of results, in Markdown. command: what made it."""
    lines = [
        "# Results",
        "",
        f"Made by `{command}` on {machine()}. Rewards are means over the first → the last tenth of "
        "a run's steps; evaluations are before the first step → after the last one. Wall time is "
        "that of the whole command. Seeds fix all draws, but without `--exact` not the last bits.",
        "",
        "## Two agents that cooperate",
        "",
        f"{_commands(marl)}; {marl[0].result['steps']} steps. Under *always-accept* and "
        "*always-reject* the same trained solver plays, but the verdict is constant.",
        "",
        *agents_table(marl),
        "",
        *agents_verdict(marl),
        "",
        "## Handwritten digits",
        "",
        f"{_commands(digits)}; {digits[0].result['steps']} steps. Exact match on held-out "
        "digits; *text* questions have no image.",
        "",
        *digits_table(digits),
    ]
    return "\n".join(lines) + "\n"


def machine() -> str:
    """This machine in a few words."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = [s for s in info.read_text().splitlines() if s.startswith("model name")]
        cpu = named[0].partition(":")[2].strip() if named else cpu
    torch = version("torch")
    return (
        f"{len(os.sched_getaffinity(0))} cores of {cpu}, Python {platform.python_version()}, "
        f"torch {torch}, {time.strftime('%Y-%m-%d')}"
    )


def _commands(runs: Sequence[Run]) -> str:
    seen = dict.fromkeys(
        shlex.join(["flowgraph", *run.case.words]).replace(f"seed={run.case.seed}", "seed=SEED")
        for run in runs
    )
    return " and ".join(f"`{command}`" for command in seen)


def _means(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    first, last = (statistics.fmean(values) for values in zip(*pairs, strict=True))
    return first, last


def _change(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.3f} → {ends[1]:.3f}"


def _wall(run: Run) -> str:
    return f"{run.result['wall_s']:.0f} s"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    ruled = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(row)} |" for row in ruled]


@click.command(help=__doc__)
@click.option("--seeds", default=3, show_default=True, help="Seeds 0, 1, ... to run.")
@click.option("--steps", type=int, help="Steps of each run (default: the graph's own).")
@click.option("--runs", type=click.Path(path_type=Path), help="Folder of the run directories.")
@click.option(
    "--output", type=click.Path(path_type=Path), default=ROOT / "docs/results.md", help="The page."
)
def main(seeds: int, steps: int | None, runs: Path | None, output: Path) -> None:
    folder = (runs or ROOT / "runs" / time.strftime("learn-%Y%m%d-%H%M%S")).absolute()
    cases = [
        Case(graph=graph, seed=seed, settings=settings, steps=steps)
        for graph, settings in (
            ("examples/marl_arithmetic.py", ()),
            ("examples/vlm_digits.py", ()),
            ("examples/vlm_digits.py", ("encoder=frozen",)),
        )
        for seed in range(1 if settings else seeds)  # frozen: beside seed 0, for comparison
    ]
    done = [execute(case, folder) for case in cases]
    typed = "make learn" if steps is None else f"python -m benchmarks.learn --steps {steps}"
    output.write_text(page(done[:seeds], done[seeds:], typed))
    print(f"\nruns: {folder}\nresults: {output}")


if __name__ == "__main__":
    main()
