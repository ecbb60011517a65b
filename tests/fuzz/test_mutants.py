"""A sample of `make fuzz`; the gate runs 20,000."""

import subprocess
import sys

import pytest

from tests.fuzz.trial import Corpus, trial

SAMPLE = 1_000


@pytest.mark.slow
def test_every_mutant_is_read_with_the_same_meaning_or_refused_by_name() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--count", str(SAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout
    for outcome in (
        "data: legal",
        "data: refused",
        "text: legal",
        "typed: legal",
        "typed: not legal",
    ):
        assert outcome in said, "mutants of this kind are missing"


def test_a_mutant_depends_on_its_number_only() -> None:
    first, second = Corpus.small(), Corpus.small()
    for seed in range(20):
        trial(first, seed)
    for seed in reversed(range(20)):
        trial(second, seed)
    assert first.outcomes == second.outcomes
