#!/usr/bin/env python
"""Command line of the platform: `manage.py help` lists the commands."""

import argparse
import gc
import os
import sys

COLLECT_AFTER = 20_000  # new objects: what imports make is no garbage, and looking takes a tenth of them


def name_data_folder(arguments: list[str]) -> None:
    """`up --data DIR` must hold before the settings are read: they find, or make, the secrets there."""
    if arguments[:1] == ["up"]:
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--data")
        if folder := parser.parse_known_args(arguments)[0].data:
            os.environ["JOBSPLATFORM_DATA"] = os.path.abspath(folder)


def main() -> None:
    """Run a management command; a file or a database that cannot be reached is one line and exit 1."""
    gc.set_threshold(COLLECT_AFTER)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsplatform.settings")
    name_data_folder(sys.argv[1:])
    if folder := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        os.makedirs(folder, exist_ok=True)  # before prometheus_client is imported
    from django.core.management import execute_from_command_line
    from django.db import OperationalError

    try:
        execute_from_command_line(sys.argv)
    except OSError as error:
        if "--traceback" in sys.argv or error.filename is None:
            raise
        sys.exit(f"{error.filename}: {error.strerror}")
    except OperationalError as error:
        if "--traceback" in sys.argv:
            raise
        reason = " ".join(str(error).split())
        sys.exit(f"The database refused or cannot be reached ({reason}). Is `manage.py up` running?")


if __name__ == "__main__":
    main()
