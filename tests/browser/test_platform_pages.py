"""The first page, queues, processes and shards in a real browser: seen, live, by keyboard, without JavaScript."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyotp
import pytest
from django.contrib.auth import get_user_model
from django.db import connections
from django.utils import timezone
from playwright.sync_api import Page, expect

from jobqueue import policies, processes
from jobqueue.models import Process, Queue
from tenants import authenticators
from tenants.models import Authenticator
from tests.browser.conftest import LOOKS, Site, Visitor, Watch

pytestmark = pytest.mark.needs("chromium")
PASSWORD = "correct horse battery"
PAGES = {
    "home": "/admin/",
    "queues": "/admin/queues/",
    "queue": "/admin/queues/mail/",
    "paused-queue": "/admin/queues/docs/",
    "pause": "/admin/queues/mail/pause/",
    "policy": "/admin/queue/policyversion/{queue}/new/",
    "processes": "/admin/processes/",
    "codes": "/admin/codes/",
    "shards": "/admin/shards/",
}


@pytest.fixture(scope="module")
def scene() -> Callable[[], object]:
    from tests.browser.scenes import demo_scene

    def build() -> object:
        made = demo_scene()
        for kind in (Process.Kind.DISPATCHER, Process.Kind.REAPER):
            processes.Beacon(kind, name=f"host-1:{kind}").beat()
        processes.Beacon(
            Process.Kind.WORKER, name="host-1:w", slots=8, queues=("mail",), held=lambda: 3
        ).beat()
        return made

    return build


@pytest.mark.parametrize(("suffix", "width", "scheme"), LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_clean_in_light_and_dark_wide_and_narrow(
    visit: Visitor, audit: Callable[..., None], name: str, suffix: str, width: int, scheme: str
) -> None:
    Process.objects.update(beat_at=timezone.now())  # however long it took so far
    address = PAGES[name].format(queue=Queue.objects.get(name="mail").pk)
    audit(visit(address, width=width, scheme=scheme), f"{name}-{suffix}")


def test_the_first_page_names_the_starving_tenant_and_draws_its_chart(visit: Visitor) -> None:
    page = visit("/admin/")
    page.get_by_text("acme starves in mail / H").click()
    page.wait_for_url("**/admin/queues/mail/")
    page.go_back()
    expect(page.locator("figure.chart canvas")).to_have_count(1)
    page.get_by_text("As a table").click()
    expect(page.get_by_role("cell").filter(visible=True).first).to_be_visible()


def test_a_fragment_refreshes_says_its_age_and_stops_when_told(visit: Visitor) -> None:
    page = visit("/admin/queues/docs/")
    expect(page.locator("[data-age]").first).to_have_text("1 s old", timeout=4_000)
    with page.expect_response("**fragment=now**") as answered:
        pass
    assert answered.value.headers["x-fragment"] == "now"
    page.get_by_role("button", name="Stop refreshing").click()
    expect(page.locator("[data-age]").first).to_contain_text("paused")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(6_000)
    assert asked == []


def test_a_session_that_ended_does_not_put_the_log_in_page_into_a_fragment(visit: Visitor) -> None:
    page = visit("/admin/shards/")
    page.context.clear_cookies()
    with page.expect_response("**/admin/login/**"):
        page.evaluate("htmx.trigger('#live-shards', 'poll')")
    expect(page.locator("#live-shards table")).to_be_visible()
    expect(page.locator("[data-age]")).to_contain_text("cannot refresh", timeout=3_000)


def test_a_fragment_in_use_is_left_alone(visit: Visitor) -> None:
    page = visit("/admin/queues/")
    page.locator("#live-queues a").first.focus()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(6_000)
    assert asked == []


def test_weights_show_their_effect_while_they_are_typed(visit: Visitor) -> None:
    number = Queue.objects.get(name="mail").pk
    page = visit(f"/admin/queue/policyversion/{number}/new/")
    expect(page.locator("ol.opportunities li")).to_have_text(list("HHHNNLHHHNNL"))
    page.get_by_label("Weight of H").fill("1")
    expect(page.locator("ol.opportunities li")).to_have_text(list("HNNLHNNLHNNL"))


def test_weights_show_their_effect_without_javascript(visit: Visitor) -> None:
    number = Queue.objects.get(name="mail").pk
    page = visit(f"/admin/queue/policyversion/{number}/new/", javascript=False)
    page.get_by_label("Weight of L").fill("3")
    page.get_by_role("button", name="Show what it would do").click()
    assert page.locator("ol.opportunities li").all_inner_texts() == list("HHHNNLLLHHHN")


def test_a_queue_is_paused_by_keyboard_and_resumed_without_javascript(
    visit: Visitor, tab_to: Callable[[Page, str], None], site: Site
) -> None:
    page = visit("/admin/queues/mail/")
    tab_to(page, "Pause…")
    page.keyboard.press("Enter")
    page.wait_for_url("**/pause/")
    tab_to(page, "For how long (minutes):")
    page.keyboard.type("30")
    page.keyboard.press("Tab")
    page.keyboard.type("smtp is down")
    tab_to(page, "Pause")
    page.keyboard.press("Enter")
    page.wait_for_url("**/admin/queues/mail/")
    expect(page.get_by_text("Starts paused by user:ops")).to_be_visible()
    still = visit("/admin/queues/mail/", javascript=False)
    still.get_by_role("link", name="Resume starts…").click()
    still.get_by_role("button", name="Resume").click()
    assert still.get_by_text("Starts paused").count() == 0
    policies.forget()
    assert not policies.by_name("mail").is_dispatch_paused
    connections["default"].close()


def test_a_worker_is_drained_from_its_page(visit: Visitor) -> None:
    Process.objects.filter(kind=Process.Kind.WORKER).update(
        beat_at=timezone.now()
    )  # however long it took so far
    page = visit("/admin/processes/")
    page.get_by_label("Drain host-1:w").click()
    page.get_by_label("Reason").fill("new version")
    page.get_by_role("button", name="Drain").click()
    expect(page.get_by_text("asked by user:ops")).to_be_visible()


def test_who_may_only_look_is_offered_nothing(visit: Visitor, watch: Watch) -> None:
    page = visit("/admin/queues/mail/", user="viewer")
    assert page.get_by_role("link", name="Pause…").count() == 0
    watch.expected = ["403"]
    visit("/admin/queues/mail/pause/", user="viewer")
    refused = visit("/admin/queues/", user="nobody")
    assert refused.get_by_role("heading", name="Not allowed").is_visible()


@pytest.mark.parametrize(("suffix", "width", "scheme"), LOOKS)
def test_codes_are_set_up_from_the_page_and_asked_for_at_the_door(
    visit: Visitor, audit: Callable[..., None], suffix: str, width: int, scheme: str
) -> None:
    user = get_user_model().objects.create_superuser("coder", "", PASSWORD)
    try:
        page = visit("/admin/codes/", user="coder", width=width, scheme=scheme)
        page.get_by_role("button", name="Set up codes").click()
        picture = page.get_by_role("img", name="The secret below, for the camera of an app")
        assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 100
        audit(page, f"codes-begun-{suffix}")
        page.get_by_label("Code:").fill(_code(user))
        page.get_by_role("button", name="Switch codes on").click()
        expect(page.get_by_text("From now on a log-in asks for a code.")).to_be_visible()
        audit(page, f"codes-held-{suffix}")
        door = visit("/admin/login/?next=/admin/queues/", user=None, width=width, scheme=scheme)
        door.get_by_label("Username:").fill("coder")
        door.get_by_label("Password:").fill(PASSWORD)
        door.get_by_role("button", name="Log in").click()
        door.wait_for_url("**/login/code/**")
        audit(door, f"code-{suffix}")
        door.keyboard.type(_code(user))  # the field has the focus already
        door.keyboard.press("Enter")
        door.wait_for_url("**/admin/queues/")
    finally:
        user.delete()


def _code(user: Any) -> str:
    """A code that is good now, though one of this half minute was used."""
    Authenticator.objects.filter(user=user).update(last_step=0)
    held = Authenticator.objects.get(user=user)
    code: str = pyotp.TOTP(authenticators.secret(held)).now()
    return code
