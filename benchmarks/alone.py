"""`make bench`: what this machine does, from a fresh checkout, in a few minutes; nothing needs to run.

First `manage.py bench` (verbs, worker, HTTP) on a server of its own, then ours beside the SQL floor: figures of two
runs do not compare, ratios of one run do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import ground


def main() -> None:
    sys.path[:0] = [str(ground.ROOT), str(ground.ROOT / "queue")]
    from jobsplatform.embedded import Server

    with tempfile.TemporaryDirectory(prefix="jobsplatform-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = Server(folder)
        server.ensure_running()
        try:
            code = _run(["manage.py", "bench", *sys.argv[1:]], ground.environment(folder))
        finally:
            server.stop()
    if code == 0:
        print(flush=True)
        side_by_side = ["-m", "benchmarks.peers", "--only", "jobsplatform,SQL floor", "--repetitions", "1"]
        code = _run(side_by_side, dict(os.environ))
    sys.exit(code)


def _run(arguments: list[str], environment: dict[str, str]) -> int:
    return subprocess.run([sys.executable, *arguments], cwd=ground.ROOT, env=environment).returncode


if __name__ == "__main__":
    main()
