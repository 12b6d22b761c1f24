"""The operator's desk in a browser: the jobs, one job, dead letters from their group to a campaign, the audit."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from dlq import pacing
from dlq.models import DeadLetter
from jobqueue import upkeep
from jobqueue.admin.jobs import job_url
from jobqueue.ids import format_id
from tests import cast
from tests.browser.conftest import LOOKS, Visitor

pytestmark = pytest.mark.needs("chromium")

TRACE = (
    'Traceback (most recent call last):\n  File "/app/mail.py", line {line}, in send\nOSError: {name} is down'
)
Audit = Callable[..., None]


def _letter(visit: Visitor) -> DeadLetter:
    """The first of globex's reports, whose month is wrong."""
    scene = visit.site.scene
    return (
        DeadLetter.objects.using(cast.SHARD).filter(job_id__in=scene.dead, reason="invalid").order_by("pk")[0]
    )


def _tried_twice() -> int:
    """A dead letter whose two attempts said different things."""
    now = timezone.now() - timedelta(minutes=5)
    job_id = cast.enqueue(now=now, max_attempts=2, kind="twice")
    for turn, line in enumerate((7, 12)):
        when = now + timedelta(seconds=100 * turn)
        upkeep.promote(now=when)
        (lease,) = cast.claim(now=when, kinds=("twice",))
        said = TRACE.format(line=line, name="x" * 300 * turn)
        ends = "permanent" if turn else "transient"
        cast.fail(lease, now=when + timedelta(seconds=1), message=said, error_class=ends)
    return job_id


def _addresses(visit: Visitor) -> dict[str, str]:
    letter, scene = _letter(visit), visit.site.scene
    name = format_id(letter.pk)
    return {
        "jobs": "/admin/queue/job/",
        "jobs-query": "/admin/queue/job/?q=state:dead+error:%22refused%22",
        "jobs-refused": "/admin/queue/job/?q=colour:red",
        "job-dead": job_url(letter.pk),
        "job-ready": job_url(scene.ready[0]),
        "job-running": job_url(scene.running[0]),
        "job-reveal": f"/admin/queue/job/{name}/reveal/",
        "groups": "/admin/dlq/deadletter/groups/",
        "group": f"/admin/dlq/deadletter/groups/{letter.fingerprint}/",
        "letter": f"/admin/dlq/deadletter/{name}/change/",
        "correct": f"/admin/dlq/deadletter/{name}/correct/?present",
        "wizard-scope": "/admin/dead-letters/redrive/",
        "wizard-report": f"/admin/dead-letters/redrive/?fingerprint={letter.fingerprint}&step=report",
        "wizard-pace": f"/admin/dead-letters/redrive/?fingerprint={letter.fingerprint}&step=pace",
        "wizard-correction": f"/admin/dead-letters/redrive/?fingerprint={letter.fingerprint}&step=correction"
        "&patch=%7B%22month%22%3A12%2C%22year%22%3Anull%7D",
        "letter-compared": f"/admin/dlq/deadletter/{format_id(_tried_twice())}/change/",
        "audit": "/admin/audit/",
        "audit-verify": "/admin/audit/verify/?go=1",
    }


@pytest.mark.parametrize(("suffix", "width", "scheme"), LOOKS)
def test_every_page_of_the_desk_is_clean(
    visit: Visitor, audit: Audit, suffix: str, width: int, scheme: str
) -> None:
    for name, address in _addresses(visit).items():
        page = visit(address, width=width, scheme=scheme)
        audit(page, f"desk-{name}-{suffix}")
        page.context.close()


def test_a_known_error_is_snoozed_and_the_matrix_says_so(visit: Visitor, audit: Audit) -> None:
    letter = _letter(visit)
    page = visit(f"/admin/dlq/deadletter/groups/{letter.fingerprint}/", width=400, scheme="dark")
    page.get_by_label("Known issue").fill("https://tickets.example/17")
    page.get_by_label("Why it can wait").fill("The form is mended on Monday")
    page.get_by_role("button", name="Snooze").click()
    expect(page.get_by_text("It calls for no attention until")).to_be_visible()
    audit(page, "desk-snoozed-dark-narrow")
    page.goto("/admin/dlq/deadletter/groups/")
    expect(page.get_by_text("by user:ops: The form is mended on Monday")).to_be_visible()
    audit(page, "desk-snoozed-matrix-dark-narrow")
    page.go_back()
    page.get_by_label("Why it ends now").fill("It is mended")
    page.get_by_role("button", name="End the snooze").click()
    expect(page.get_by_text("It calls for attention again.")).to_be_visible()


def test_the_tour_of_the_desk(visit: Visitor, audit: Audit) -> None:
    """Open a group, correct with a note, redrive by a campaign, watch it finish, see it all in the audit."""
    letter = _letter(visit)
    page: Page = visit("/admin/")
    page.get_by_role("navigation", name="Screens").get_by_role("link", name="Dead letters").click()
    page.get_by_role("link", name=re.compile("month must be")).click()
    page.get_by_role("link", name=format_id(letter.pk), exact=True).click()
    page.get_by_role("link", name="Correct…").click()
    page.get_by_role("link", name="Start from the present payload").click()
    page.get_by_label("Payload", exact=True).fill('{"month": "12"}')
    page.get_by_label("Note").fill("The month was typed wrong")
    page.get_by_role("button", name="Check and compare").click()
    expect(page.locator("pre.diff")).to_contain_text('"month": "12"')
    audit(page, "desk-compared")
    page.get_by_role("button", name="Store the correction").click()
    expect(page.get_by_text("Version 1 of the payload")).to_be_visible()

    page.goto(f"/admin/dlq/deadletter/groups/{letter.fingerprint}/")
    page.get_by_role("link", name="Redrive all of it…").click()
    page.get_by_role("button", name="Freeze and look").click()
    expect(page.locator("#matches")).to_have_text("2")
    page.get_by_role("button", name="Next: correction").click()
    page.get_by_role("button", name="Next: pace").click()
    page.get_by_label("Canary").fill("0")
    page.get_by_label("Note").fill("Corrected")
    page.get_by_role("button", name="Next: summary").click()
    audit(page, "desk-summary")
    page.get_by_label("Type redrive 2 to begin").fill("redrive 2")
    page.get_by_role("button", name="Start the campaign").click()
    expect(page.get_by_text("0 of 2 treated")).to_be_visible()

    pacing.advance()
    (lease,) = cast.claim("default", now=None, kinds=("report",), limit=10)
    assert (lease.job_id, lease.payload) == (letter.pk, '{"month": "12"}')
    cast.complete(lease)
    pacing.advance()
    pacing.follow()
    expect(page.get_by_text("2 of 2 treated")).to_be_visible(timeout=15_000)  # by itself: the page is live
    expect(page.locator(".card-succeeded strong")).to_have_text("1")
    audit(page, "desk-campaign")

    page.goto(job_url(letter.pk))
    expect(page.locator("#verdict")).to_contain_text("Succeeded")
    expect(page.get_by_text("Redriven by user:ops in campaign")).to_be_visible()
    audit(page, "desk-job-done")
    page.goto("/admin/audit/")
    expect(page.get_by_role("cell", name="job.correct").first).to_be_visible()


def test_the_wizard_and_the_query_bar_work_without_javascript(visit: Visitor) -> None:
    page = visit("/admin/queue/job/", javascript=False)
    page.locator("#query").fill("state:dead")
    page.get_by_role("button", name="Find", exact=True).click()
    page.get_by_role("link", name="Without state:dead").click()
    page = visit("/admin/dead-letters/redrive/?reason=exhausted", javascript=False)
    page.get_by_role("button", name="Freeze and look").click()
    expect(page.locator("#matches")).to_have_text("6")
    frozen = page.url
    assert "frozen=" in frozen
    page.goto("/admin/")
    page.goto(frozen)  # a step is an address
    expect(page.locator("#matches")).to_have_text("6")


def test_the_desk_is_walked_by_keyboard(visit: Visitor, tab_to: Callable[[Page, str], None]) -> None:
    page = visit("/admin/queue/job/")
    page.locator("#query").focus()
    page.keyboard.type("state:ready")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=state**")
    first = page.locator("table.jobs tbody th a").first.inner_text()
    tab_to(page, first)
    page.keyboard.press("Enter")
    page.wait_for_selector("#verdict")
