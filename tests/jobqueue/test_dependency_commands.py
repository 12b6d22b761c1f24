"""`manage.py dependency` and the admin's page: the same verbs, the same words."""

from __future__ import annotations

import pytest
from django.urls import reverse

from jobqueue import dependencies
from jobqueue.models import Dependency
from jobsplatform.adminsite import badge
from tests import admin_cast, cast
from tests.admin_cast import page
from tests.cast import OPS
from tests.commands_cast import refused, run

pytestmark = pytest.mark.django_db


def out(*arguments: str) -> str:
    ran = run("dependency", *arguments)
    assert ran.code == 0, ran
    return ran.out


def test_the_list_tells_where_each_stands() -> None:
    cast.enqueue(dependency="crm")
    cast.enqueue(dependency="smtp")
    assert out("list") == (
        "crm: closed, 0 running, 0 of 0 calls failed\nsmtp: closed, 0 running, 0 of 0 calls failed\n"
    )
    assert out("list", "crm").startswith("crm: closed")


def test_set_changes_what_it_bears() -> None:
    text = out("set", "smtp", "max_running=4", "rate_per_s=2.5", "--reason", "their plan")
    assert text == "smtp: closed, 0 running of 4 (at most 4), 0 of 0 calls failed, at most 2.5 a second\n"
    out("set", "smtp", "max_running=none", "rate_per_s=none")
    assert out("list") == "smtp: closed, 0 running, 0 of 0 calls failed\n"
    assert cast.audited("dependency.set", alias="default") == 2


def test_open_and_close_are_an_operator_s_hand() -> None:
    cast.enqueue(dependency="smtp")
    assert (
        out("open", "smtp", "--reason", "maintenance") == "smtp: held open, 0 running, 0 of 0 calls failed\n"
    )
    assert cast.claim(now=None) == []
    assert out("close", "smtp") == "smtp: closed, 0 running, 0 of 0 calls failed\n"
    assert len(cast.claim(now=cast.at(0))) == 1


def test_an_open_breaker_says_when_it_probes() -> None:
    lease = cast.leased(dependency="smtp", now=None)
    dependencies.set_dependency("smtp", {"breaker_calls": 1}, actor=OPS)
    cast.fail(lease, error_class="overload")
    assert out("list", "smtp").startswith("smtp: open, probes at 20")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("list", "nowhere"), "There is no dependency 'nowhere'."),
        (("open", "nowhere"), "There is no dependency 'nowhere'."),
        (("set", "smtp", "max_running=many"), "max_running must be a whole number or none, not 'many'."),
        (("set", "smtp", "max_running=0"), "max_running: Ensure this value is greater than or equal to 1."),
        (("set", "smtp", "rate_burst=3"), "rate_burst needs rate_per_s."),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments: tuple[str, ...], says: str) -> None:
    assert refused("dependency", *arguments) == f"CommandError: {says}"


def test_the_admin_sets_opens_and_closes_by_the_verbs() -> None:
    client = admin_cast.operator()
    dependencies.set_dependency("smtp", {"max_running": 3}, actor=OPS)
    row = Dependency.objects.get(name="smtp")
    change = reverse("admin:queue_dependency_change", args=[row.pk])
    fields = {name: getattr(row, name) for name in dependencies.SETTINGS}
    sent = {name: value for name, value in fields.items() if value is not None} | {"max_running": 9}
    assert client.post(change, sent).status_code == 302
    assert cast.read("SELECT max_running FROM queue_dependencystate") == [(9,)]
    for verb, state in (("open", "held open"), ("close", "closed")):
        asked = client.post(
            reverse(f"admin:queue_dependency_{verb}", args=[row.pk]), {"reason": "maintenance"}
        )
        assert asked.status_code == 302
        shown = page(client, reverse("admin:queue_dependency_changelist"))
        assert f'<td class="field-breaker">{badge(state)}</td>' in shown
    assert cast.audited("dependency.set", alias="default") == 2
