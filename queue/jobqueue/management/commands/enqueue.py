"""`manage.py enqueue`: puts jobs in, from arguments, lines of JSON, or the files of a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from django.core.management.base import CommandError, CommandParser
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jobqueue import following
from jobqueue.enqueue import Accepted, NewJob, enqueue
from jobqueue.ids import format_id
from jobqueue.requests import Reader, Request, files_of, from_texts
from jobqueue.types import Scope
from jobsplatform.commands import VerbCommand
from jobsplatform.errors import JobsPlatformError, NotFound, TenantSuspended
from jobsplatform.wording import describe
from tenants import access
from tenants.access import TenantRef

BATCH_JOBS: Final = 200
BATCH_BYTES: Final = 4 * 1024 * 1024  # of payload
REFUSALS_SHOWN_MAX: Final = 20
INTERRUPTED: Final = 130
MEMBERS: Final = (
    "kind",
    "queue",
    "priority",
    "request_key",
    "payload_ref",
    "not_before",
    "delay_s",
    "deadline",
    "expires_in_s",
    "max_attempts",
    "dependency",
)


class Command(VerbCommand):
    help = (
        "Put jobs in: one from PAYLOAD, or one a line of JSON (the body of POST /v1/jobs) from --file or stdin, "
        "or one a file of --each-file. Flags fill in what a line does not say."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("payload", nargs="?", metavar="PAYLOAD", help="JSON; without it (or for -) stdin is read")
        add("--payload", dest="payload_flag", metavar="JSON", help="the same as PAYLOAD")
        add("--tenant", required=True, metavar="SLUG", help="whose jobs they are")
        add("--kind", help="the handler that the job needs")
        add("--queue", help="(default)")
        add("--priority", metavar="BAND", help="a band's index or name (the queue's default)")
        add("--request-key", metavar="KEY", help="names the job: a repeat puts nothing new in")
        add("--payload-ref", metavar="REF", help="instead of a payload")
        add("--not-before", metavar="INSTANT")
        add("--delay-s", metavar="SECONDS")
        add("--deadline", metavar="INSTANT")
        add("--expires-in-s", metavar="SECONDS")
        add("--max-attempts", metavar="N")
        add("--dependency", metavar="NAME", help="what the job calls outside")
        source = parser.add_mutually_exclusive_group()
        source.add_argument("--file", metavar="PATH", help="lines of JSON")
        source.add_argument(
            "--each-file", type=Path, metavar="DIR", help="one job a file, for the kind text.index"
        )
        add(
            "--wait", action="store_true", help="follow the jobs to their ends; exit 1 if one did not succeed"
        )

    def act(self, options: dict[str, Any]) -> None:
        tenant = _tenant(options["tenant"])
        reader = Reader(tenant, from_texts({name: options[name] for name in MEMBERS}))
        try:
            with self._source(options, reader) as (requests, total):
                run = _Run(self, tenant, waits=options["wait"], total=total)
                with run.screen:
                    run.put_in(requests)
                    if options["wait"]:
                        run.follow()
        except KeyboardInterrupt:
            self.stderr.write("Interrupted; what was accepted goes on.")
            sys.exit(INTERRUPTED)
        run.conclude()

    @contextmanager
    def _source(
        self, options: dict[str, Any], reader: Reader
    ) -> Iterator[tuple[Iterable[Request], int | None]]:
        """The requests, and how many there are (None: not known)."""
        payload, folder, file = options["payload"], options["each_file"], options["file"]
        if options["payload_flag"] is not None:
            if payload is not None:
                raise CommandError("Give PAYLOAD or --payload, not both.")
            payload = options["payload_flag"]
        if payload not in (None, "-") and (folder or file):
            raise CommandError("Give PAYLOAD, --file or --each-file, not two of them.")
        if folder is not None:
            yield _requests_of(folder, reader, options)
        elif file is not None and file != "-":
            with _opened(file) as stream:
                yield reader.lines(stream), None
        elif payload in (None, "-") and options["payload_ref"] is None:
            yield self._stdin(reader), None
        else:
            yield reader.single(payload), 1

    def _stdin(self, reader: Reader) -> Iterator[Request]:
        if sys.stdin is None or sys.stdin.isatty():
            raise CommandError(
                "Give a PAYLOAD (JSON; null for none), --file, --each-file, or lines on stdin."
            )
        return reader.lines(sys.stdin.buffer)


def _opened(file: str) -> BinaryIO:
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None


def _tenant(slug: str) -> TenantRef:
    tenant = access.tenant_by_slug(slug)
    if tenant is None:
        raise NotFound(f"There is no tenant {slug!r}.")
    if tenant.is_suspended:
        raise TenantSuspended
    return tenant


def _requests_of(folder: Path, reader: Reader, options: dict[str, Any]) -> tuple[Iterable[Request], int]:
    if not folder.is_dir():
        raise CommandError(f"{folder} is no folder.")
    if options["request_key"] is not None:
        raise CommandError("One --request-key cannot name a job for each file.")
    count = len(files_of(folder))
    if not count:
        raise CommandError(f"{folder} holds no files.")
    return reader.files(folder), count


class _Screen:
    """Lines on stdout, and on a terminal a bar below them."""

    def __init__(self, command: VerbCommand) -> None:
        self._command = command
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)

    def __enter__(self) -> _Screen:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, title: str, total: int | None) -> None:
        if self._bar is not None:
            for task in self._bar.task_ids:
                self._bar.remove_task(task)
            self._bar.add_task(title, total=total)

    def advance(self, count: int) -> None:
        if self._bar is not None and self._bar.task_ids:
            self._bar.advance(self._bar.task_ids[0], count)

    def line(self, text: str) -> None:
        if self._bar is not None and sys.stdout.isatty():
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            self._command.stdout.write(text)

    def refusal(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
        else:
            self._command.stderr.write(text)


class _Run:
    """One call of the command: what was accepted and refused, and how it ended."""

    def __init__(self, command: VerbCommand, tenant: TenantRef, *, waits: bool, total: int | None) -> None:
        self.screen = _Screen(command)
        self._tenant = tenant
        self._waits = waits
        self._total = total
        self._places: dict[int, str] = {}
        self._accepted = self._replayed = self._refused = 0
        self._endings: dict[str, int] = {}

    def put_in(self, requests: Iterable[Request]) -> None:
        self.screen.begin("Enqueued", self._total)
        for batch in _batches(requests):
            jobs = [request.job for request in batch if isinstance(request.job, NewJob)]
            try:
                outcomes = iter(enqueue(jobs))
            except JobsPlatformError as error:
                put = self._accepted + self._replayed
                raise CommandError(f"{describe(error)} ({put} jobs were accepted before)") from error
            for request in batch:
                self._note(request, next(outcomes) if isinstance(request.job, NewJob) else request.job)
            self.screen.advance(len(batch))

    def _note(self, request: Request, outcome: Accepted | JobsPlatformError) -> None:
        prefix = f"{request.place}: " if request.place else ""
        if isinstance(outcome, JobsPlatformError):
            self._refused += 1
            if self._refused <= REFUSALS_SHOWN_MAX:
                self.screen.refusal(f"{prefix}{describe(outcome)}")
            return
        self._accepted += not outcome.replayed
        self._replayed += outcome.replayed
        if self._waits:
            self._places[outcome.job_id] = request.place
        else:
            word = "replayed" if outcome.replayed else "accepted"
            self.screen.line(" ".join(filter(None, [format_id(outcome.job_id), word, request.place])))

    def follow(self) -> None:
        self.screen.begin("Ended", len(self._places))
        for ending in following.follow(list(self._places), scope=Scope(tenant_id=self._tenant.id)):
            self._endings[ending.state] = self._endings.get(ending.state, 0) + 1
            place = self._places[ending.job_id]
            self.screen.line(
                " ".join(filter(None, [format_id(ending.job_id), ending.state, place, ending.detail]))
            )
            self.screen.advance(1)

    def conclude(self) -> None:
        """The last line; exit 1 when something was refused or did not succeed, or there was nothing."""
        if not self._accepted + self._replayed + self._refused:
            raise CommandError("No jobs: nothing to read.")
        parts = [f"{self._accepted} accepted"]
        parts += [f"{self._replayed} replayed"] if self._replayed else []
        parts += [f"{self._refused} refused"] if self._refused else []
        parts += [f"{count} {state}" for state, count in sorted(self._endings.items())]
        if self._accepted + self._replayed + self._refused > 1 or self._waits:
            self.screen.line(", ".join(parts))
        if self._refused or set(self._endings) - {"succeeded"}:
            sys.exit(1)


def _batches(requests: Iterable[Request]) -> Iterator[list[Request]]:
    """Groups of requests, bounded in number and in bytes of payload."""
    batch: list[Request] = []
    size = 0
    for request in requests:
        batch.append(request)
        size += len(request.job.payload or "") if isinstance(request.job, NewJob) else 0
        if len(batch) >= BATCH_JOBS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
