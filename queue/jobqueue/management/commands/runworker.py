"""`manage.py runworker`: claims jobs that it has handlers for and runs them until a signal."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import connections

from jobqueue import policies
from jobqueue.models import Process
from jobqueue.processes import Beacon
from jobqueue.worker import executor
from jobqueue.worker.keeper import Keeper
from jobqueue.worker.options import BadOption, WorkerOptions, default_name
from jobqueue.worker.process import PRIVATE_FLAG
from jobqueue.worker.registration import Registration
from jobqueue.worker.reserve import Slots
from jobqueue.worker.verbs import DatabaseVerbs
from jobsplatform.commands import StrictCommand
from jobsplatform.errors import NotFound
from jobsplatform.loop import add_probe, die_with_parent, parent_is_gone, serve_probe


class Command(StrictCommand):
    help = (
        "Run handlers. SIGTERM drains within the grace period; a second signal gives all jobs back at once."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--queues", type=_names, help="only these queues, with commas (all)")
        add("--kinds", type=_names, help="only these kinds, with commas (all that have a handler)")
        add("--concurrency", type=int, default=8, metavar="N", help="handler threads in each process (8)")
        add("--processes", type=int, default=1, metavar="N", help="processes that run handlers (1)")
        add("--lease", type=int, metavar="SECONDS", help="length of leases (the queue's)")
        add("--max-priority", type=int, metavar="BAND", help="largest band index to claim (all)")
        add(
            "--reserve",
            type=_slots,
            metavar="BAND:N",
            help="N threads of each process run only this band and more urgent ones (none); claims no job ahead",
        )
        add(
            "--suspects",
            type=int,
            default=1,
            metavar="N",
            help="jobs whose worker died that run at a time, each alone in a process (1)",
        )
        add(
            "--suspect-memory",
            type=int,
            metavar="MB",
            help="address space of such a process (half of memory)",
        )
        add("--suspect-run", type=int, metavar="SECONDS", help="longest run of such a job (its queue's)")
        add("--once", action="store_true", help="work until nothing is claimable, then exit")
        add("--grace", type=float, default=10, metavar="SECONDS", help="for running jobs after SIGTERM (10)")
        add_probe(parser)
        add("--name", default="", help="who holds the leases, for people (host:pid)")
        add(PRIVATE_FLAG, dest="executor", help="==SUPPRESS==")
        add("--as", dest="as_json", help="==SUPPRESS==")

    def handle(self, *args: Any, **given: Any) -> None:
        if given["executor"]:
            executor.run(given["executor"], WorkerOptions.from_json(given["as_json"]))
        die_with_parent()
        options = _options(given)
        kinds = _kinds(options)
        self._refuse_unknown_names(options)
        Registration(options.name, kinds).start()
        keeper = Keeper(options, DatabaseVerbs(options, kinds, options.name), parent_is_gone=parent_is_gone)
        serve_probe(options.probe_port, given["probe_host"], "last_poll_age_s", keeper.poll_age_s)
        beacon = _beacon(options, keeper)
        if not options.once:
            beacon.start()
        code = keeper.run()
        if not options.once:
            beacon.end_soon()
        if keeper.has_loose_ends:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # a thread that waits for a silent database must not hold up the exit
        if code:
            sys.exit(code)

    def _refuse_unknown_names(self, options: WorkerOptions) -> None:
        """A typing error shows at once; a database that is away does not: the executors wait for it."""
        try:
            for name in options.queues or ():
                policies.by_name(name)
            has_band = options.reserve is None or DatabaseVerbs(options, (), "").urgent_queues()
        except NotFound:
            raise CommandError(f"There is no queue {name!r}.") from None
        except Exception:  # noqa: S110
            pass
        else:
            if not has_band:
                raise CommandError("--reserve: no queue has such a band.")
        finally:
            connections.close_all()


def _beacon(options: WorkerOptions, keeper: Keeper) -> Beacon:
    return Beacon(
        Process.Kind.WORKER,
        name=options.name,
        queues=options.queues,
        slots=options.concurrency * options.processes,
        held=keeper.held,
        drain=keeper.drain,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _slots(text: str) -> Slots:
    try:
        return Slots.parse(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _options(given: dict[str, Any]) -> WorkerOptions:
    try:
        return WorkerOptions(
            queues=given["queues"],
            kinds=given["kinds"],
            concurrency=given["concurrency"],
            processes=given["processes"],
            lease_s=given["lease"],
            max_priority=given["max_priority"],
            reserve=given["reserve"],
            suspects=given["suspects"],
            **({} if given["suspect_memory"] is None else {"suspect_mb": given["suspect_memory"]}),
            suspect_run_s=given["suspect_run"],
            once=given["once"],
            grace_s=given["grace"],
            probe_port=given["probe_port"],
            name=given["name"] or default_name(),
        )
    except BadOption as error:
        raise CommandError(str(error)) from None


def _kinds(options: WorkerOptions) -> list[str]:
    try:
        kinds = executor.chosen_kinds(options)
    except LookupError as error:
        raise CommandError(f"--kinds: {error.args[0]}") from None
    if not kinds:
        raise CommandError(
            "No handlers: write @handler(kind) functions in the handlers.py of an installed app."
        )
    return kinds
