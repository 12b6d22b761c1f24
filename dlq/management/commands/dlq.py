"""`manage.py dlq …`: the dead-letter desk on the command line, by the same verbs and rules as the API."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from django.core.management.base import CommandParser

from dlq import campaigns, corrections, fork, groups, handling, patching, reads, redrive, report
from dlq.campaigns import CampaignFilter, CampaignView, NewCampaign
from dlq.reads import DeadFilter, DeadLetterView
from jobqueue import policies
from jobqueue.ids import format_id, parse_id
from jobqueue.limits import PAGE_DEFAULT, PAGE_MAX, PAYLOAD_REF_CHARS_MAX, REASON_CHARS_MAX
from jobqueue.policies import QueuePolicy
from jobqueue.states import DeadReason
from jobqueue.types import FLEET, Scope
from jobsplatform.commands import VerbCommand, actor, key, verb_parser
from jobsplatform.errors import Invalid, NotFound
from jobsplatform.instants import format_instant, format_optional, parse_instant
from jobsplatform.wording import one_line
from tenants import registry

MESSAGE_SHOWN: Final = 70  # characters of an error in a list
NEWEST_CAMPAIGNS: Final = 20
CAMPAIGN_VERBS: Final = {"pause": campaigns.pause, "resume": campaigns.resume, "abort": campaigns.abort}


class Command(VerbCommand):
    help = "Look at dead letters, correct them, and put them back: one by one, or in a campaign."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        one = (_add_show, _add_correct, _add_redrive, _add_fork)
        for add in (_add_list, _add_groups, _add_growth, _add_assign, _add_snooze, _add_wake, *one):
            add(verbs)
        _add_campaign(verbs)

    def act(self, options: dict[str, Any]) -> None:
        act: Callable[[dict[str, Any]], None] = getattr(self, f"act_{options['verb']}")
        act(options)

    # Looking

    def act_list(self, options: dict[str, Any]) -> None:
        wanted = DeadFilter(
            queue_id=_queue_id(options),
            reason=options["reason"],
            kind=options["kind"],
            fingerprint=options["fingerprint"],
            failed_before=_instant(options, "failed_before"),
        )
        limit = options["limit"]
        if not 1 <= limit <= PAGE_MAX:
            raise Invalid.at("/limit", f"--limit is a whole number from 1 to {PAGE_MAX}.")
        views, more = reads.page(wanted, scope=_scope(options), before=None, limit=limit)
        for view in views:
            self.stdout.write(_line(view))
        self.stdout.write(f"{len(views)} shown" + (", there are more." if more else "."))

    def act_groups(self, options: dict[str, Any]) -> None:
        found, more = groups.page(scope=_scope(options), before=None, limit=PAGE_DEFAULT)
        for group in found:
            count = f"{min(group.count, groups.COUNT_CAP):,}" + ("+" if group.is_capped else "")
            kinds = ", ".join(group.kinds)
            self.stdout.write(
                f"{group.fingerprint}  {count:>7}  {format_instant(group.last_seen)}  {kinds}: {_short(group.sample)}"
            )
        counted = "1 group" if len(found) == 1 else f"{len(found)} groups"
        self.stdout.write(f"{counted} shown" + (", there are more." if more else "."))
        if any(group.is_cut for group in found):
            self.stdout.write("Not all errors were looked at: there are too many for one read.")

    def act_assign(self, options: dict[str, Any]) -> None:
        done = handling.assign(
            options["fingerprint"], assignee=options["assignee"], note=_note(options), actor=actor()
        )
        self.stdout.write(f"{done.assignee or 'Nobody'} looks after {done.fingerprint}.")

    def act_snooze(self, options: dict[str, Any]) -> None:
        held = handling.snooze(
            options["fingerprint"],
            for_s=options["for_s"],
            note=_note(options),
            actor=actor(),
            known_issue=options["known_issue"],
            wakes_after=options["wakes_after"],
        )
        until = format_optional(held.snoozed_until)
        self.stdout.write(f"{held.fingerprint} is snoozed until {until}, or {held.wakes_after:,} more came.")

    def act_wake(self, options: dict[str, Any]) -> None:
        held = handling.wake(options["fingerprint"], note=_note(options), actor=actor())
        self.stdout.write(f"{held.fingerprint} calls for attention again.")

    def act_growth(self, options: dict[str, Any]) -> None:
        for one in groups.growth():
            alarm = "  GROWING" if one.is_alarming else ""
            known = f" ({one.snoozed:,} of snoozed errors)" if one.snoozed else ""
            self.stdout.write(
                f"{one.queue}: {one.recent:,} in 5 minutes{known}, usually {one.usual:.1f}{alarm}"
            )

    def act_show(self, options: dict[str, Any]) -> None:
        job_id = parse_id(options["job"])
        view = reads.dead_letter(job_id, scope=FLEET)
        for name, value in _facts(view):
            self.stdout.write(f"{name:<20} {value}")
        for version in reads.corrections([job_id])[job_id]:
            at = format_instant(version.at)
            self.stdout.write(
                f"correction {version.version:<9} {at} by {version.author}: {one_line(version.note)}"
            )

    # One dead letter

    def act_correct(self, options: dict[str, Any]) -> None:
        payload = options["payload"]
        if options["payload_file"] is not None:
            payload = _file(options["payload_file"])
        if (payload is None) == (options["payload_ref"] is None):
            raise Invalid.at("/payload", "Give one of --payload, --payload-file and --payload-ref.")
        if (
            options["payload_ref"] is not None
            and not 1 <= len(options["payload_ref"]) <= PAYLOAD_REF_CHARS_MAX
        ):
            raise Invalid.at("/payload_ref", f"--payload-ref has 1 to {PAYLOAD_REF_CHARS_MAX:,} characters.")
        new = corrections.NewCorrection(
            note=_note(options),
            actor=actor(),
            payload=None if payload is None else payload.strip(),
            payload_ref=options["payload_ref"],
        )
        done = corrections.correct(parse_id(options["job"]), new, scope=FLEET)
        self.stdout.write(f"Version {done.version} of the payload of {options['job']} is stored.")

    def act_redrive(self, options: dict[str, Any]) -> None:
        new = redrive.NewRedrive(
            note=_note(options),
            actor=actor(),
            redrive_key=options["key"],
            not_before=_instant(options, "not_before"),
            deadline=_instant(options, "deadline"),
            max_attempts=_attempts(options["max_attempts"]),
        )
        done = redrive.redrive(parse_id(options["job"]), new, scope=FLEET)
        became = f"was made {done.state} by this key before" if done.replayed else f"is {done.state} again"
        self.stdout.write(
            f"Job {options['job']} {became} (redrive {done.redrive_generation}, audit {done.audit_id})."
        )

    def act_fork(self, options: dict[str, Any]) -> None:
        new = fork.NewFork(request_key=options["request_key"], note=_note(options), actor=actor())
        done = fork.fork(parse_id(options["job"]), new, scope=FLEET)
        self.stdout.write(
            f"Job {format_id(done.job_id)} is a new operation made from {format_id(done.origin_job_id)}."
        )

    # Campaigns

    def act_campaign(self, options: dict[str, Any]) -> None:
        step = options["step"]
        if step == "create":
            self._create(options)
        elif step == "list":
            for view in campaigns.newest(NEWEST_CAMPAIGNS, scope=_scope(options)):
                self.stdout.write(_progress(view))
        elif step == "show":
            self.stdout.write(_progress(campaigns.get(options["id"], scope=FLEET)))
        else:
            _note(options, required=False)
            view = CAMPAIGN_VERBS[step](options["id"], scope=FLEET, actor=actor(), reason=options["note"])
            self.stdout.write(_progress(view))

    def _create(self, options: dict[str, Any]) -> None:
        chosen = CampaignFilter(
            queue_id=_queue_id(options),
            reason=options["reason"],
            kind=options["kind"],
            fingerprint=options["fingerprint"],
            failed_before=_instant(options, "failed_before"),
        )
        patch = None if options["patch"] is None else patching.check(options["patch"])
        if options["dry_run"]:
            found = campaigns.preview(chosen, scope=_scope(options), is_patched=patch is not None)
            more = " or more" if found.is_capped else ""
            skips = "".join(f", {count:,} {reason}" for reason, count in sorted(found.would_skip.items()))
            left = found.matches - sum(found.would_skip.values())
            self.stdout.write(f"{found.matches:,}{more} match: {left:,} would be redriven{skips}.")
            if patch is not None:
                self._tried(report.report(chosen, scope=_scope(options), patch=patch))
            return
        new = NewCampaign(
            chosen=chosen,
            note=_note(options),
            actor=actor(),
            rate_per_s=_bounded(options, "rate", 1, campaigns.RATE_MAX),
            canary=_bounded(options, "canary", 0, campaigns.CANARY_MAX),
            stop_at_failure_share=_bounded(options, "stop_at", campaigns.STOP_SHARE_MIN, 1),
            patch=patch,
        )
        made = campaigns.create(new, scope=_scope(options))
        self.stdout.write(_progress(campaigns.seen(made)))

    def _tried(self, found: report.Report) -> None:
        """What a patch makes of those that were looked at."""
        stays = "".join(f", {count:,} {reason}" for reason, count in sorted(found.patched_stay.items()))
        self.stdout.write(
            f"Of {found.sampled:,} looked at {found.patched_count:,} would be corrected{stays}."
        )
        for one in found.failing:
            self.stdout.write(f"{format_id(one.job_id)} would stay: {one_line(one.why)}")


# Arguments


def _add_filter(parser: CommandParser) -> None:
    parser.add_argument("--tenant", metavar="SLUG", help="of one tenant alone")
    parser.add_argument("--queue", metavar="NAME")
    parser.add_argument("--reason", choices=DeadReason.values)
    parser.add_argument("--kind", type=_named)
    parser.add_argument("--fingerprint", type=_named, help="as `dlq groups` shows it")
    parser.add_argument("--failed-before", metavar="INSTANT", help="RFC 3339, such as 2030-01-31T08:00:00Z")


def _named(text: str) -> str:
    """Refuses what is empty: a filter by it would find nothing, for ever."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty; leave it out for any")
    return text


def _add_list(verbs: Any) -> None:
    parser = verb_parser(verbs, "list", help="dead letters, newest first")
    _add_filter(parser)
    parser.add_argument("--limit", type=int, default=PAGE_DEFAULT)


def _add_groups(verbs: Any) -> None:
    parser = verb_parser(verbs, "groups", help="dead letters by the error that they share, latest first")
    parser.add_argument("--tenant", metavar="SLUG", help="of one tenant alone")


def _add_assign(verbs: Any) -> None:
    parser = verb_parser(verbs, "assign", help="say who looks after an error")
    parser.add_argument("fingerprint", metavar="FINGERPRINT", help="as `dlq groups` shows it")
    parser.add_argument("--assignee", default="", metavar="ACCOUNT", help="empty: nobody")
    parser.add_argument("--note", required=True, help="why, or what is known")


def _add_snooze(verbs: Any) -> None:
    parser = verb_parser(verbs, "snooze", help="let an error call for no attention for a while")
    parser.add_argument("fingerprint", metavar="FINGERPRINT", help="as `dlq groups` shows it")
    parser.add_argument("--for", dest="for_s", type=int, required=True, metavar="SECONDS", help="how long")
    parser.add_argument("--note", required=True, help="why, or what is known")
    parser.add_argument("--known-issue", default="", metavar="TEXT", help="a ticket or its address")
    parser.add_argument(
        "--wakes-after", type=int, metavar="N", help="more dead letters end it; default: as many as there are"
    )


def _add_wake(verbs: Any) -> None:
    parser = verb_parser(verbs, "wake", help="end a snooze before its time")
    parser.add_argument("fingerprint", metavar="FINGERPRINT", help="as `dlq groups` shows it")
    parser.add_argument("--note", required=True, help="why")


def _add_growth(verbs: Any) -> None:
    verb_parser(verbs, "growth", help="how many jobs of each queue died lately, and usually do")


def _add_show(verbs: Any) -> None:
    parser = verb_parser(verbs, "show", help="one dead letter; its payload stays masked")
    parser.add_argument("job", metavar="JOB", help="its id")


def _add_correct(verbs: Any) -> None:
    parser = verb_parser(verbs, "correct", help="store a new version of the payload beside the old one")
    parser.add_argument("job", metavar="JOB", help="its id")
    parser.add_argument("--note", required=True, help="why")
    parser.add_argument("--payload", metavar="JSON")
    parser.add_argument("--payload-file", metavar="FILE", help="- is the standard input")
    parser.add_argument("--payload-ref", metavar="REF")


def _add_redrive(verbs: Any) -> None:
    parser = verb_parser(verbs, "redrive", help="put a dead letter back, once")
    parser.add_argument("job", metavar="JOB", help="its id")
    parser.add_argument("--note", required=True, help="why")
    parser.add_argument("--key", type=key, help="the same key again answers what the first call did")
    parser.add_argument("--not-before", metavar="INSTANT")
    parser.add_argument("--deadline", metavar="INSTANT", help="needed when the job's own has passed")
    parser.add_argument("--max-attempts", type=int)


def _add_fork(verbs: Any) -> None:
    parser = verb_parser(verbs, "fork", help="make a new operation of a dead letter, under a new key")
    parser.add_argument("job", metavar="JOB", help="its id")
    parser.add_argument("--note", required=True, help="why")
    parser.add_argument("--request-key", type=key, required=True, help="of the new job")


def _add_campaign(verbs: Any) -> None:
    steps = verb_parser(verbs, "campaign", help="redrive many, paced").add_subparsers(
        dest="step", required=True, metavar="STEP"
    )
    parser = verb_parser(steps, "create", help="start one over what a filter chooses now")
    _add_filter(parser)
    parser.add_argument("--note", default="", help="why")
    parser.add_argument("--rate", type=int, default=campaigns.RATE_DEFAULT, help="redrives a second")
    parser.add_argument("--canary", type=int, default=campaigns.CANARY_DEFAULT, help="so many first")
    parser.add_argument(
        "--stop-at",
        type=float,
        default=campaigns.STOP_SHARE_DEFAULT,
        help="the share of failures that stops it",
    )
    parser.add_argument("--patch", metavar="JSON", help="merged into each payload first (RFC 7396)")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    listing = verb_parser(steps, "list", help="the newest")
    listing.add_argument("--tenant", metavar="SLUG")
    verb_parser(steps, "show", help="how far one is").add_argument("id", type=int, metavar="ID")
    for step in CAMPAIGN_VERBS:
        parser = verb_parser(steps, step)
        parser.add_argument("id", type=int, metavar="ID")
        parser.add_argument("--note", default="", help="why, for the audit")


# Values


def _scope(options: dict[str, Any]) -> Scope:
    slug = options["tenant"]
    return FLEET if slug is None else Scope(tenant_id=registry.get(slug).pk)


def _queue_id(options: dict[str, Any]) -> int | None:
    name = options["queue"]
    if name is None:
        return None
    try:
        queue: QueuePolicy = policies.by_name(name)
    except NotFound:
        raise NotFound(f"There is no queue {name!r}.") from None
    return queue.id


def _instant(options: dict[str, Any], name: str) -> Any:
    if options[name] is None:
        return None
    try:
        return parse_instant(options[name])
    except ValueError as error:
        raise Invalid.at(f"/{name}", f"--{name.replace('_', '-')} is no instant: {error}.") from None


def _note(options: dict[str, Any], *, required: bool = True) -> str:
    note: str = options["note"]
    if required and not note.strip():
        raise Invalid.at("/note", "--note must say why.")
    if len(note) > REASON_CHARS_MAX:
        raise Invalid.at("/note", f"--note has at most {REASON_CHARS_MAX:,} characters.")
    return note


def _attempts(asked: int | None) -> int | None:
    if asked is not None and not 1 <= asked <= 100:
        raise Invalid.at("/max_attempts", "--max-attempts is a whole number from 1 to 100.")
    return asked


def _bounded(options: dict[str, Any], name: str, low: float, high: float) -> Any:
    value = options[name]
    if not low <= value <= high:
        raise Invalid.at(f"/{name}", f"--{name.replace('_', '-')} is between {low:g} and {high:g}.")
    return value


def _file(name: str) -> str:
    try:
        if name == "-":
            return sys.stdin.read()
        with open(name, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid.at("/payload-file", f"{name} cannot be read: {error}") from None


# Lines


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= MESSAGE_SHOWN else f"{line[: MESSAGE_SHOWN - 1]}…"


def _line(view: DeadLetterView) -> str:
    said = ": ".join(filter(None, [view.error_class, _short(view.message)]))
    mark = " (correct first)" if view.correction_required else ""
    return f"{format_id(view.job_id)}  {format_instant(view.failed_at)}  {view.kind}  {view.reason}{mark}  {said}"


def _facts(view: DeadLetterView) -> Sequence[tuple[str, object]]:
    queue = policies.names({view.queue_id}).get(view.queue_id, "")
    return [
        ("job", format_id(view.job_id)),
        ("kind", f"{view.kind} in {queue}, priority {view.priority}"),
        ("reason", view.reason + (", must be corrected first" if view.correction_required else "")),
        ("failed", format_optional(view.failed_at)),
        ("error", f"{view.error_class}: {_short(view.message)}"),
        ("fingerprint", view.fingerprint),
        ("attempts, crashes", f"{view.attempts_used}, {view.crashes}"),
        ("generation", view.generation),
        ("redrives", view.redrive_generation),
        ("payload", _masked(view)),
    ]


def _masked(view: DeadLetterView) -> str:
    if view.payload_ref is not None:
        return f"reference {view.payload_ref}"
    return f"{view.payload_bytes} bytes, SHA-256 {view.payload_sha256}"


def _progress(view: CampaignView) -> str:
    skips = "".join(f", {count:,} {reason}" for reason, count in sorted(view.skipped.items()))
    eta = "" if not view.eta_s else f", about {view.eta_s:,} s left"
    unknown = f"; shards {json.dumps(list(view.unknown_shards))} do not answer" if view.unknown_shards else ""
    matches = f"{view.matches:,}{'+' if view.is_capped else ''}"
    return (
        f"Campaign {view.campaign.pk} is {view.campaign.state}: {view.redriven:,} of {matches} redriven{skips}; "
        f"{view.succeeded:,} succeeded, {view.failed:,} failed{eta}{unknown}."
    )
