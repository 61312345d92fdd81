"""What the installed plugin adds to a plain pytest run that does not use it.

    python tests/benchmarks/bench_plugin_load.py [times]

Runs of an empty suite with the plugin and with an empty module in its place, by turns;
other plugins are off. (Naming any plugin makes pytest search installed entry points,
which every ordinary run does.) The median of the differences of neighbours counts.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main(times: int) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
        root = Path(folder)
        (root / "test_empty.py").write_text("def test_nothing():\n    pass\n")
        (root / "pytest.ini").write_text("[pytest]\n")
        (root / "empty_plugin.py").write_text("")
        _run(root, "pytest_evo.plugin.entry")
        pairs = [
            (_run(root, "pytest_evo.plugin.entry"), _run(root, "empty_plugin"))
            for _ in range(times)
        ]
        added = statistics.median(1e3 * (one - other) for one, other in pairs)
        plain = statistics.median(1e3 * other for _, other in pairs)
        print(
            f"a plain run takes {plain:.0f} ms; the plugin adds {added:.1f} ms "
            f"(median of {times} pairs), bound 15 ms"
        )


def _run(root: Path, plugin: str) -> float:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", plugin]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    began = time.perf_counter()
    subprocess.run(
        command, cwd=root, check=True, stdout=subprocess.DEVNULL, env=environment
    )
    return time.perf_counter() - began


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 25)
