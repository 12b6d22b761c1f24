"""The frame in a real browser: log in by keyboard, every list of the admin, a policy that is kept and reported."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from jobqueue.models import Queue
from tests.browser.conftest import LOOKS, Visitor, Watch

pytestmark = pytest.mark.needs("chromium")
PAGES = {
    "queues": "/admin/queue/queue/",
    "queue-form": "/admin/queue/queue/{queue}/change/",
}


@pytest.mark.parametrize(("suffix", "width", "scheme"), LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_frame_is_clean_in_light_and_dark_wide_and_narrow(
    visit: Visitor, audit: Callable[..., None], name: str, suffix: str, width: int, scheme: str
):
    address = PAGES[name].format(queue=Queue.objects.get(name="default").pk)
    audit(visit(address, width=width, scheme=scheme), f"{name}-{suffix}")


def test_one_logs_in_by_keyboard(visit: Visitor, audit: Callable[..., None]):
    page = visit("/admin/", user=None)
    audit(page, "login")
    page.keyboard.type("ops")
    page.keyboard.press("Tab")
    page.keyboard.type("correct horse battery")
    page.keyboard.press("Enter")
    page.wait_for_selector("#user-tools")


def test_a_page_that_breaks_the_policy_is_reported(visit: Visitor, watch: Watch):
    watch.expected = ["Content Security Policy", "csp-report", "script-src"]
    page = visit("/admin/")
    with page.expect_response("**/csp-report") as reported:
        page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {text: 'window.bad = 1'}))"
        )
    assert reported.value.status == 204
    assert page.evaluate("window.bad") is None


def test_the_frame_works_without_javascript(visit: Visitor):
    page: Page = visit("/admin/", javascript=False)
    assert page.get_by_role("link", name="Queues").count() >= 1
