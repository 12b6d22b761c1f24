"""Pages in a real browser: one server and one scene a file, Debian's Chromium, and a watch over every page.

A test asks for `visit` and opens addresses with it. At its end no page may have had an error in its console, a report
of the Content-Security-Policy, a failed request or an exception. `audit` runs axe; `tab_to` walks by keyboard.
A test that sweeps over pages is parametrized with `LOOKS`, of which all but the first are `slow`. Mark a file with
`pytestmark = pytest.mark.needs("chromium")`.

What the server shows is the file's own: a fixture named `scene` (scope "module") that builds it through the verbs, with
the database's real clock, and returns whatever the tests want to know of it. Without one it is `demo_scene`.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.core.servers.basehttp import ThreadedWSGIServer
from django.core.wsgi import get_wsgi_application
from django.db import connections
from django.test.testcases import QuietWSGIRequestHandler
from playwright.sync_api import Browser, ConsoleMessage, Page, Response, sync_playwright

from jobsplatform import reports

AXE: Final = (Path(__file__).parent / "vendor" / "axe" / "axe.min.js").read_text()
# Axe sets styles of form fields while it looks, which the policy forbids to it as to anyone. Nor can it read a sheet
# that another one imports, as the admin's own do; it says so, and goes on.
AXE_ITSELF: Final = ("style", "Couldn't load preload assets")
TOLD_SECONDS: Final = 1  # after it has looked
RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
WIDE, NARROW = 1280, 400
# How each page of a sweep is seen: suffix, width, colour scheme. Every day the first alone.
LOOKS: Final = [
    pytest.param("light", WIDE, "light", id="light"),
    pytest.param("dark-narrow", NARROW, "dark", id="dark-narrow", marks=pytest.mark.slow),
]
FLAGS: Final = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
PICTURES: Final = os.environ.get(
    "JOBSPLATFORM_PICTURES"
)  # a folder: every audited page is photographed into it


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser, started once; Django's guard against threads of async code would mistake its loop for ours."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@dataclass
class Site:
    """The running server, and what its scene's builder returned."""

    url: str
    scene: Any


@pytest.fixture(scope="module")
def scene() -> Any:
    """What the pages show; a file may have its own fixture of this name."""
    from tests.browser.scenes import demo_scene  # a conftest is read before Django is set up

    return demo_scene


@pytest.fixture(scope="module")
def site(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any, chromium: Browser
) -> Iterator[Site]:
    """A server on a free port of loopback, with the file's scene; the databases are cleaned afterwards."""
    from tests.conftest import clean, forget_everything

    build: Callable[[], Any] = request.getfixturevalue("scene")
    with django_db_blocker.unblock():
        forget_everything()  # a scene is built before the first test's own fixtures
        built = build()
        server = ThreadedWSGIServer(("127.0.0.1", 0), QuietWSGIRequestHandler)
        server.set_app(get_wsgi_application())
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield Site(f"http://127.0.0.1:{server.server_address[1]}", built)
        finally:
            server.shutdown()
            server.server_close()
            clean()
            forget_everything()
            connections.close_all()


# Visiting


@dataclass
class Watch:
    """What went wrong in a test's pages."""

    wrongs: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)  # parts of messages that the test wants to see
    searched: dict[Page, tuple[str, float]] = field(
        default_factory=dict
    )  # by axe: the address, and until when

    def tell(self, page: Page, kind: str, text: str) -> None:
        if not self._is_of_axe(page, text) and not any(part in text for part in self.expected):
            self.wrongs.append(f"{kind}: {text}")

    def _is_of_axe(self, page: Page, text: str) -> bool:
        address, until = self.searched.get(page, ("", 0))
        is_there = (
            page.url == address or address in text
        )  # a report names its page, and may come after the next one
        return time.monotonic() < until and is_there and any(part in text for part in AXE_ITSELF)

    def follow(self, page: Page) -> None:
        def written(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                self.tell(page, "console", message.text)

        def answered(response: Response) -> None:
            if response.status >= 400:
                self.tell(page, "response", f"{response.status} {response.url}")
            if response.url.endswith("/csp-report"):
                self.tell(page, "csp", response.request.post_data or "")

        page.on("console", written)
        page.on("pageerror", lambda error: self.tell(page, "exception", str(error)))
        page.on("response", answered)


@dataclass
class Visitor:
    """Opens pages of the site as a user, in a window of a width, a colour scheme, with JavaScript or without."""

    site: Site
    browser: Browser
    watch: Watch
    contexts: list[Any] = field(default_factory=list)

    def __call__(
        self,
        path: str = "/admin/",
        *,
        user: str | None = "ops",
        width: int = WIDE,
        scheme: Any = "light",
        javascript: bool = True,
    ) -> Page:
        """A new page at an address; `user` must exist in the scene (None: nobody is logged in)."""
        context = self.browser.new_context(
            base_url=self.site.url,
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=javascript,
            reduced_motion="reduce",
        )
        context.set_default_timeout(10_000)
        if user is not None:
            context.add_cookies([{"name": "sessionid", "value": session_of(user), "url": self.site.url}])
        self.contexts.append(context)
        page = context.new_page()
        self.watch.follow(page)
        page.goto(path)
        return page


@pytest.fixture
def watch() -> Watch:
    """Name in `watch.expected` what a test provokes, such as "403"."""
    return Watch()


@pytest.fixture
def visit(site: Site, chromium: Browser, watch: Watch) -> Iterator[Visitor]:
    visitor = Visitor(site, chromium, watch)
    yield visitor
    for context in visitor.contexts:
        context.close()
    assert watch.wrongs == []


def session_of(username: str) -> str:
    """The cookie of a fresh session of a user."""
    from django.contrib.sessions.backends.db import SessionStore

    user = get_user_model().objects.get(username=username)
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return str(session.session_key)


# What every page must be


@pytest.fixture
def audit(watch: Watch) -> Callable[..., None]:
    def of(page: Page, name: str = "") -> None:
        page.wait_for_load_state("load")
        page.wait_for_timeout(100)  # what the page itself does wrong is told by now
        watch.searched[page] = (page.url, float("inf"))
        try:
            _audit(page, name)
        finally:
            watch.searched[page] = (page.url, time.monotonic() + TOLD_SECONDS)

    return of


def _audit(page: Page, name: str) -> None:
    """Axe finds nothing, and the page is no wider than its window. With a name it may be photographed."""
    if PICTURES and name:
        Path(PICTURES).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{PICTURES}/{name}.png")
    page.evaluate(AXE + "; undefined")  # by the debugger, which no policy of the page forbids
    found = page.evaluate(
        "rules => axe.run(document, {runOnly: rules, resultTypes: ['violations'], preload: false})", RULES
    )
    wrongs = [
        f"{wrong['id']} ({wrong['impact']}): {wrong['help']}: {node['html'][:300]}"
        for wrong in found["violations"]
        for node in wrong["nodes"]
    ]
    assert wrongs == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "wider than its window"


@pytest.fixture
def tab_to() -> Callable[[Page, str], None]:
    return _tab_to


def _tab_to(page: Page, text: str, *, presses: int = 120) -> None:
    """Press Tab until what has the focus is called `text`; every stop on the way shows where it is."""
    for _ in range(presses):
        page.keyboard.press("Tab")
        seen = page.evaluate(
            """() => { const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
            const name = e.getAttribute('aria-label') || e.innerText || e.value || e.labels?.[0]?.innerText || '';
            return {name: name.trim(), visible: r.width > 0 && s.visibility !== 'hidden'}; }"""
        )
        assert seen["visible"], f"the focus is on something that cannot be seen: {seen['name']}"
        if seen["name"] == text:
            return
    raise AssertionError(f"the keyboard does not reach {text!r}")


@pytest.fixture(autouse=True)
def _fresh_reports() -> None:
    reports.forget()
