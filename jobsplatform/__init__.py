"""The Django project: settings, URLs, database placement, and what every app stands on."""

import sys
from pathlib import Path

# `queue/` is a source root, not a package (a package of that name would shadow the standard library's).
# Whatever imports the project first (manage.py, gunicorn, a test, a type checker) finds the apps by this.
_SOURCE_ROOT = Path(__file__).resolve().parent.parent / "queue"
if _SOURCE_ROOT.is_dir() and str(_SOURCE_ROOT) not in sys.path:
    sys.path.append(str(_SOURCE_ROOT))
