"""What Django's Tasks cost here: enqueue alone and inside a transaction, and a handler's own transaction.

    JOBSPLATFORM_DATA=/tmp/bench-tasks DJANGO_SETTINGS_MODULE=tests.tasks_site.settings \
        PYTHONPATH=.:queue python benchmarks/tasks_backend.py [seconds]

It starts an embedded PostgreSQL in that folder, with one shard in the default database, and leaves it behind stopped.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path


def main(seconds: float) -> None:
    import django

    from jobsplatform.embedded import Server

    server = Server(Path(os.environ["JOBSPLATFORM_DATA"]).absolute())
    server.ensure_running()  # before the settings are read, which ask for its port
    try:
        django.setup()
        _prepare()
        for name, action in _actions().items():
            print(f"{name}: {_rate(action, seconds):,.0f}/s")
    finally:
        from django.db import connections

        connections.close_all()
        server.stop()


def _prepare() -> None:
    from django.core.management import call_command

    from tenants import registry
    from tenants.models import Tenant

    call_command("migrate", verbosity=0)
    if not Tenant.objects.filter(slug="acme").exists():
        registry.create_tenant("acme", actor="benchmark")


def _actions() -> dict[str, Callable[[], object]]:
    from django.db import transaction

    from jobqueue import claiming, leases, policies
    from jobqueue.worker.ending import together
    from tests.tasks_site.shop.tasks import add

    def in_transaction() -> None:
        with transaction.atomic():
            add.enqueue(1, 2)

    def lease() -> claiming.Lease:
        [found] = claiming.claim(claiming.ClaimRequest(queues=(policies.by_name("default"),)))
        return found

    def complete() -> None:
        held = lease()
        leases.complete([leases.Complete(held.job_id, held.generation, held.token)])

    def own_transaction() -> None:
        with together(lease(), "default"):
            pass

    return {
        "enqueue": lambda: add.enqueue(1, 2),
        "enqueue in a transaction": in_transaction,
        "claim and complete": complete,
        "claim and complete in a transaction of its own": own_transaction,
    }


def _rate(action: Callable[[], object], seconds: float) -> float:
    action()
    start = time.perf_counter()
    count = 0
    while time.perf_counter() - start < seconds:
        action()
        count += 1
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0)
