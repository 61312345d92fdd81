from __future__ import annotations

import os

# Read by bm25s when it is imported. Its progress bars, even those that are not shown,
# start a thread and load multiprocessing at first use, and so in every forked test run.
os.environ.setdefault("DISABLE_TQDM", "1")
