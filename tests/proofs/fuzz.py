"""Property tests with many more examples, and how many there were.

    python tests/proofs/fuzz.py [--examples 3000] [--seed 1] [PATH ...]

Runs what hypothesis generates for under the paths (trees, edits, journal and stores by
default) and adds up the examples that hypothesis itself reports. Exits with pytest's
code.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

PATHS = (
    "tests/unit/artifact",
    "tests/unit/store",
    "tests/unit/plugin",
    "tests/unit/test_hostile.py",
    "tests/unit/test_spots.py",
)
_TEST = re.compile(r"^(tests/\S+::\S+):$", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("paths", nargs="*", default=PATHS)
    chosen = parser.parse_args()
    command = [sys.executable, "-m", "pytest", "-q", "-m", "hypothesis", "-n", "0"]
    command += ["--hypothesis-profile=fuzz", "--hypothesis-show-statistics"]
    command += [f"--hypothesis-seed={chosen.seed}", *chosen.paths]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTEST_EVO_FUZZ": str(chosen.examples)},
        capture_output=True,
        text=True,
        check=False,
    )
    parts = _TEST.split(done.stdout)[1:]
    counts = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        counts[name] = sum(map(int, re.findall(r"- (\d+) passing", text)))
        print(f"{counts[name]:>8,}  {name}")
    print(f"{sum(counts.values()):>8,}  examples of {len(counts)} properties")
    print(done.stdout.splitlines()[-1] if done.stdout else done.stderr)
    if done.returncode:
        print(done.stdout, done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
