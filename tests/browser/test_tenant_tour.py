"""The tenant's tour, and the operators' page of a tenant, in a real browser: by keyboard, and without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from jobqueue import dependencies, upkeep
from jobqueue.ids import format_id
from jobqueue.schedules import register
from tenants import access, members, registry
from tests import cast
from tests.browser.conftest import LOOKS
from tests.browser.scenes import HOSTILE, Scene, people

pytestmark = pytest.mark.needs("chromium")

PASSWORD = "correct horse battery"


def build() -> Scene:
    """acme's own work in every situation; *ann* is its admin, *vic* its viewer."""
    scene = Scene(now=timezone.now())
    people()
    for name in ("ann", "vic"):
        get_user_model().objects.create_user(name, password=PASSWORD)
    acme = registry.create_tenant("acme", name="Acme " + HOSTILE, actor=cast.OPS)
    members.set_member("acme", "ann", "admin", actor=cast.OPS, reason="owns it")
    members.set_member("acme", "vic", "viewer", actor=cast.OPS)
    early = scene.now - timedelta(minutes=10)
    mail = cast.queue("mail", preset="hnl", age_objective_s={"H": 60})
    registry.set_quota("acme", {"max_depth": 12, "max_running": 10}, actor=cast.OPS, reason=HOSTILE)
    registry.set_quota("acme", {"max_depth": 40}, queue="mail", actor=cast.OPS)
    for message in ("connection refused by smtp-3", HOSTILE):
        cast.enqueue_many(2, now=early, queue=mail, tenant_id=acme.pk, max_attempts=1, kind="mail.send")
        held = cast.claim(mail, now=early, limit=2)
        cast.kill(held, now=early + timedelta(seconds=1), message=message)
        scene.dead += [lease.job_id for lease in held]
    cast.enqueue(now=early, tenant_id=acme.pk, kind="report", payload='{"month": "13"}')
    held = cast.claim("default", now=early)
    cast.kill(held, now=early + timedelta(seconds=1), error_class="permanent", message="month must be 1..12")
    scene.dead += [held[0].job_id]
    cast.enqueue_many(3, now=early, tenant_id=acme.pk, kind="resize")
    for lease in cast.claim("default", now=early, limit=3):
        cast.complete(lease, now=early + timedelta(seconds=2))
    cast.enqueue_many(2, now=scene.now, tenant_id=acme.pk, kind="resize", max_attempts=3)
    cast.claim("default", now=scene.now, limit=2, lease_s=3_600)
    scene.ready = cast.enqueue_many(8, now=early, queue=mail, tenant_id=acme.pk, priority=0, kind="mail.send")
    cast.enqueue_many(2, now=scene.now, tenant_id=acme.pk, dependency="smtp")
    new = register.NewSchedule(
        tenant_id=acme.pk,
        queue=cast.queue(),
        name="nightly",
        kind="report",
        cron="30 2 * * *",
        timezone="Europe/Berlin",
        priority=2,
    )
    scene.token = str(register.create(new, actor=cast.OPS).id)
    access.create_token(tenant=acme, scopes=["produce"], name="app " + HOSTILE, actor=cast.OPS)
    dependencies.set_dependency("smtp", {"max_running": 10}, actor=cast.OPS)
    upkeep.fold()
    upkeep.sample_usage()
    for minutes in range(9, 0, -1):
        upkeep.sample_depths(now=scene.now - timedelta(minutes=minutes))
    return scene


@pytest.fixture(scope="module")
def scene() -> Callable[[], Scene]:
    return build


def pages_of(scene: Scene) -> list[str]:
    dead, ready = format_id(scene.dead[-1]), format_id(scene.ready[0])
    return [
        "",
        "jobs/",
        "jobs/?q=state:dead",
        f"jobs/{ready}/",
        f"jobs/{dead}/",
        f"jobs/{ready}/cancel/",
        f"jobs/{ready}/payload/",
        "dead/",
        f"dead/{dead}/",
        f"dead/{dead}/correct/",
        f"dead/{dead}/redrive/",
        "limits/",
        "schedules/",
        f"schedules/{scene.token}/",
        "tokens/",
        "tokens/new/",
        "members/",
        "start/",
    ]


@pytest.mark.parametrize(("suffix", "width", "scheme"), LOOKS)
def test_every_page_of_a_tenant_is_sound(
    visit: Any, audit: Any, site: Any, suffix: str, width: int, scheme: str
) -> None:
    page = visit("/t/acme/", user="ann", width=width, scheme=scheme)
    for place, part in enumerate(pages_of(site.scene)):
        page.goto(f"/t/acme/{part}")
        audit(page, f"portal-{place:02d}-{suffix}")


@pytest.mark.slow
def test_every_page_of_a_tenant_works_without_javascript(visit: Any, site: Any) -> None:
    page = visit("/t/acme/", user="ann", javascript=False)
    for part in pages_of(site.scene):
        page.goto(f"/t/acme/{part}")
        assert page.locator("h1").count() >= 1
    page.goto("/t/acme/")
    assert page.get_by_label("Waiting and running, by queue and level").is_visible()


@pytest.mark.parametrize(("suffix", "width", "scheme"), LOOKS)
def test_the_operators_pages_of_a_tenant_are_sound(
    visit: Any, audit: Any, suffix: str, width: int, scheme: str
) -> None:
    page = visit("/admin/tenants/tenant/", width=width, scheme=scheme)
    audit(page, f"tenants-{suffix}")
    page.get_by_role("link", name="acme").first.click()
    audit(page, f"tenant-{suffix}")
    tenant = page.url
    for name in ("Set limits…", "Add a member…", "Suspend…", "Make a token…"):
        page.goto(tenant)
        page.get_by_role("link", name=name).click()
        audit(page, f"tenant-{name.split()[0].lower().strip('…')}-{suffix}")
    page.goto("/admin/queue/dependency/")
    audit(page, f"dependencies-{suffix}")
    page.get_by_role("link", name="smtp").first.click()
    audit(page, f"dependency-{suffix}")
    page.get_by_role("link", name="Open…").click()
    audit(page, f"dependency-open-{suffix}")
    page.goto("/admin/queue/schedule/")
    audit(page, f"schedules-{suffix}")
    page.get_by_role("link", name="nightly").first.click()
    audit(page, f"schedule-{suffix}")


def test_an_operator_edits_a_quota_sees_its_effect_and_goes_back(visit: Any, audit: Any) -> None:
    page = visit("/admin/tenants/tenant/")
    page.get_by_role("link", name="acme").first.click()
    page.get_by_role("link", name="Change limits in all queues").first.click()
    page.get_by_label("Max depth").fill("3")
    page.get_by_label("Reason").fill("they asked for less")
    page.get_by_role("button", name="Show the effect").click()
    assert re.search(r"\d+ jobs above the new depth stay", page.inner_text("#content"))
    audit(page, "quota-effect")
    page.get_by_role("button", name="Store these limits").click()
    assert "they asked for less" in page.get_by_label("History of limits, table").inner_text()
    page.get_by_role("link", name="Go back to version 2", exact=True).click()
    audit(page, "quota-revert")
    page.get_by_label("Reason").fill("it was a mistake")
    page.get_by_role("button", name="Go back to it").click()
    history = page.get_by_label("History of limits, table").inner_text()
    assert "Back to" in history
    assert "it was a mistake" in history
    assert registry.quota_history("acme")[0].limits["max_depth"] == 12


def test_a_dependency_is_held_open_for_a_while_and_closed(visit: Any) -> None:
    page = visit("/admin/queue/dependency/")
    page.get_by_role("link", name="smtp").first.click()
    page.get_by_role("link", name="Open…").click()
    page.get_by_label("Minutes").fill("5")
    page.get_by_label("Reason").fill("maintenance")
    page.get_by_role("button", name="Open the breaker").click()
    assert "held open" in page.inner_text("#content")
    assert "closes by itself" in page.inner_text("#content")
    page.get_by_role("link", name="Close…").click()
    page.get_by_role("button", name="Close the breaker").click()
    assert "held open" not in page.inner_text("section[aria-labelledby=stands]")


# The tenant's tour, by keyboard alone


def test_the_tenants_tour_by_keyboard(visit: Any, tab_to: Any, site: Any) -> None:
    """Log in, see what waits, find a dead letter, correct it with a note, redrive it, make a token, log out."""
    page = visit("/t/acme/", user=None)
    assert "/login/" in page.url
    tab_to(page, "Username:")
    page.keyboard.type("ann")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/t/acme/")
    assert "Waiting and running" in page.inner_text("#content")

    tab_to(page, "Dead letters")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dead/")
    name = format_id(site.scene.dead[-1])
    tab_to(page, name)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/dead/{name}/")
    tab_to(page, "Correct…")
    page.keyboard.press("Enter")
    page.wait_for_url("**/correct/")
    tab_to(page, "Payload:")
    page.keyboard.type('{"month": 12}')
    tab_to(page, "Note:")
    page.keyboard.type("the month was a text")
    tab_to(page, "Store the correction")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/dead/{name}/")
    assert "Version 1 of the payload is stored" in page.inner_text("body")
    tab_to(page, "Redrive…")
    page.keyboard.press("Enter")
    page.wait_for_url("**/redrive/")
    tab_to(page, "Note:")
    page.keyboard.type("now it fits")
    tab_to(page, "Redrive the job")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{name}/")
    assert "again, for the 1st time" in page.inner_text("body")
    assert "Redriven by user:ann" in page.inner_text("#content")

    tab_to(page, "Tokens")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tokens/")
    tab_to(page, "Make a token…")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tokens/new/")
    tab_to(page, "produce")
    page.keyboard.press("Space")
    tab_to(page, "Make the token")
    page.keyboard.press("Enter")
    page.wait_for_selector("code.secret")
    text = page.inner_text("code.secret")
    assert f"Bearer {text}" in page.inner_text("#content")
    tab_to(page, "LOG OUT")  # the style's capitals
    page.keyboard.press("Enter")
    page.wait_for_url("**/login/**")
    page.goto("/t/acme/")
    assert "/login/" in page.url


def test_a_viewer_looks_and_is_offered_nothing(visit: Any, audit: Any, site: Any) -> None:
    page = visit("/t/acme/", user="vic")
    assert page.get_by_role("link", name="Tokens").count() == 0
    page.goto(f"/t/acme/dead/{format_id(site.scene.dead[0])}/")
    assert page.get_by_role("link", name="Redrive…").count() == 0
    audit(page, "portal-viewer")


def test_the_log_in_page_is_sound(visit: Any, audit: Any) -> None:
    page = visit("/login/", user=None, width=400, scheme="dark")
    audit(page, "login")
    page.get_by_label("Username:").fill("ann")
    page.get_by_label("Password:").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    audit(page, "login-refused")
    assert "correct username and password" in page.inner_text("[role=alert]")
