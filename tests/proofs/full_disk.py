"""A full, a read-only and an inode-less disk under ``pytest --evolve``.

    python tests/proofs/full_disk.py [--sizes 1000k,1300k]

The run directory is a small tmpfs. It fills while rollouts run; then room is made and
the run is resumed: its end must be that of an undisturbed run. Needs the right to mount
(root); exits with 0 and says so where that is not permitted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from small_disk import fill
from small_disk import may_mount
from small_disk import remount
from small_disk import small_disk
from survival import can_resume
from survival import check_books
from survival import differences
from survival import end_state
from survival import executed_keys
from survival import make_survival_project
from survival import reports_are_whole
from survival import run_to_end
from survival import Session

OPTIONS = ("--budget-iterations=6", "-n", "2", "--evo-slots=2", "--evo-batch=4")


def said_clearly(session: Session, *words: str) -> str:
    """Insist on a message for people, not a traceback; returns its first line."""
    text = session.text()
    assert session.process.returncode not in (0, None), text
    assert "Traceback" not in text, text
    assert "INTERNALERROR" not in text, text
    assert any(word in text for word in words), text
    lines = [line for line in text.splitlines() if any(word in line for word in words)]
    return f"exit {session.process.returncode}: {lines[0][:200]}"


def fill_and_resume(
    base: Path, name: str, size: str, calm: list[dict[str, object]]
) -> str:
    """Fill the disk of the run directory, make room, resume, compare."""
    root = make_survival_project(base / f"full-{name}")
    with small_disk(root, ".evo", size) as place:
        session = Session(root, OPTIONS)
        session.wait()
        said = said_clearly(session, "No space left", "used up")
        session.seconds_until_gone(10)
        ran = len(executed_keys(root))
        reports_are_whole(root)
        remount(place, "size=200m,nr_inodes=0")
        resume = ("--evo-resume=last",) if can_resume(root) else ()
        run_to_end(root, *OPTIONS, *resume)
        wrong = differences(end_state(root), calm)
        assert not wrong, wrong
        check_books(root)
        subprocess.run(["cp", "-a", str(place), str(root / "kept")], check=True)
    return f"{ran} rollouts before; {said}"


def fill_reports(base: Path) -> str:
    """No room for the reports: the run is complete and says what failed."""
    root = make_survival_project(base / "full-reports")
    with small_disk(root, "evo-reports", "size=8k") as place:
        session = Session(root, OPTIONS)
        session.wait()
        said = said_clearly(session, "No space left", "used up")
        remount(place, "size=50m")
        run_to_end(root, *OPTIONS, "--evo-resume=last")
        assert reports_are_whole(root) > 3
    return said


def read_only(base: Path, name: str) -> str:
    """A read-only place is refused before anything runs."""
    root = make_survival_project(base / f"ro-{name}")
    with small_disk(root, name, "size=1m") as place:
        remount(place, "ro")
        session = Session(root, OPTIONS)
        session.wait()
        said = said_clearly(session, "Read-only", "read-only")
        assert not executed_keys(root), "rollouts ran though nothing can be written"
    return said


def fills_later(base: Path, calm: list[dict[str, object]]) -> str:
    """Something else fills the disk while the run goes on."""
    root = make_survival_project(base / "later")
    with small_disk(root, ".evo", "size=50m") as place:
        session = Session(root, OPTIONS)
        while len(executed_keys(root)) < 80 and not session.ended:
            time.sleep(0.02)
        ballast = fill(place)
        session.wait()
        said = said_clearly(session, "No space left", "used up")
        ballast.unlink()
        run_to_end(root, *OPTIONS, "--evo-resume=last")
        wrong = differences(end_state(root), calm)
        assert not wrong, wrong
    return said


def too_small(base: Path) -> str:
    """A disk without room for a run is refused before anything runs."""
    root = make_survival_project(base / "too-small")
    with small_disk(root, ".evo", "size=300k"):
        session = Session(root, OPTIONS)
        session.wait()
        said = said_clearly(session, "Make room")
        assert not executed_keys(root)
    return said


def full_temporary(base: Path, calm: list[dict[str, object]]) -> str:
    """No room in the temporary directory: no candidate is blamed for it."""
    root = make_survival_project(base / "full-tmp")
    with small_disk(root, "tmp", "size=200k") as place:
        session = Session(root, OPTIONS, environment={"TMPDIR": str(place)})
        while len(executed_keys(root)) < 80 and not session.ended:
            time.sleep(0.02)
        fill(place)
        session.wait()
        said = said_clearly(session, "is full", "used up")
        session.seconds_until_gone(10)
    run_to_end(root, *OPTIONS, "--evo-resume=last")
    wrong = differences(end_state(root), calm)
    assert not wrong, wrong
    check_books(root)
    return said


def main() -> int:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000k,1100k,1300k")
    arguments = parser.parse_args()
    if not may_mount():
        print("skipped: mounting a tmpfs is not permitted here (needs root)")
        return 0
    base = Path(tempfile.mkdtemp(prefix="full-disk-"))
    root = make_survival_project(base / "calm")
    run_to_end(root, *OPTIONS)
    calm = end_state(root)
    parts = {
        f"full at {size}": lambda size=size: fill_and_resume(
            base, size, f"size={size}", calm
        )
        for size in arguments.sizes.split(",")
    }
    parts["no inodes"] = lambda: fill_and_resume(
        base, "inodes", "size=50m,nr_inodes=60", calm
    )
    parts["fills while it runs"] = lambda: fills_later(base, calm)
    parts["too small"] = lambda: too_small(base)
    parts["reports"] = lambda: fill_reports(base)
    parts["read-only run directory"] = lambda: read_only(base, ".evo")
    parts["temporary directory"] = lambda: full_temporary(base, calm)
    figures, failed = {}, 0
    for name, part in parts.items():
        try:
            figures[name] = part()
            print(f"ok   {name}: {figures[name]}", flush=True)
        except AssertionError as error:
            failed += 1
            figures[name] = f"FAILED: {str(error)[:2500]}"
            print(f"FAIL {name}: {str(error)[:2500]}", flush=True)
    print(json.dumps(figures, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
