"""Group × act × tenant: whoever may not, cannot, by page or by verb; forged ids look absent and change nothing."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import get_resolver, reverse
from pytest_django import DjangoDbBlocker

from jobsplatform import acting, frame
from jobsplatform.errors import Forbidden
from tenants import audit, rights
from tests import cast, rights_cast
from tests.rights_cast import ACTS, GROUPS, Act

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def _people(
    shared_ground: None, django_db_blocker: DjangoDbBlocker
) -> tuple[dict[str, Client], dict[str, Client]]:
    with django_db_blocker.unblock():
        for slug in ("acme", "globex"):
            cast.tenant(slug)
        cast.queue()
        return {group: rights_cast.member_of(group) for group in GROUPS}, rights_cast.outsiders()


@pytest.fixture
def members(_people: tuple[dict[str, Client], dict[str, Client]]) -> dict[str, Client]:
    """Staff of each group."""
    return rights_cast.again(_people[0])


@pytest.fixture
def outsiders(_people: tuple[dict[str, Client], dict[str, Client]]) -> dict[str, Client]:
    """Who may do nothing."""
    return rights_cast.again(_people[1])


@pytest.mark.parametrize("slug", ["acme", "globex"])
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name.replace(" ", "-"))
def test_an_act_is_for_its_groups_alone(act: Act, slug: str, members: dict[str, Client]) -> None:
    """Groups are the platform's: they hold for every tenant alike. A tenant's own members are nobody here."""
    owner = cast.tenant(slug)
    for group, client in members.items():
        username = f"in-{group.lower().replace(' ', '-')}"
        with rights_cast.undone():
            response = act.send(client, owner)
            happened = rights_cast.done(act.action, username)
            assert happened == (1 if group in act.groups else 0), (group, response.status_code)
            assert response.status_code < 500


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name.replace(" ", "-"))
def test_an_act_is_for_no_outsider(act: Act, outsiders: dict[str, Client]) -> None:
    for who, client in outsiders.items():
        with rights_cast.undone():
            before = audit_entries()
            response = act.send(client, cast.acme())
            assert response.status_code in (302, 403), who
            by_others = [actor for actor in audit_entries()[len(before) :] if actor != cast.OPS]
            assert by_others == [], who


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name.replace(" ", "-"))
def test_forged_ids_look_absent_and_change_nothing(act: Act) -> None:
    user = User.objects.create_superuser("root", "", "x")
    client = rights_cast.client_of(user)
    with rights_cast.undone():
        for response in act.forged(client):
            assert response.status_code in (200, 302, 404), (act.name, response.status_code)
        assert rights_cast.done(act.action, "root") == 0


def audit_entries() -> list[str]:
    return [
        row[0]
        for alias in ("default", cast.SHARD)
        for row in cast.read("SELECT actor FROM tenants_auditentry ORDER BY id", alias=alias)
    ]


# The verbs themselves


def _acting(user: object, path: str = "/admin/") -> object:
    return acting.serving.set(SimpleNamespace(path=path, user=user))  # type: ignore[arg-type]


@pytest.mark.parametrize("group", GROUPS)
def test_a_verb_asks_by_itself(group: str) -> None:
    """A page that forgot to ask cannot do what its user may not: the audit of the act refuses."""
    user = User.objects.create_user("someone", is_staff=True)
    user.groups.set([Group.objects.get(name=group)])
    held = rights_cast.granted(group)
    token = _acting(User.objects.get(pk=user.pk))
    try:
        for action, needed in rights.NEEDED.items():
            if needed == rights.ITS_PAGE or set(needed.split("|")) & held:
                rights.check(action)
            else:
                with pytest.raises(Forbidden):
                    rights.check(action)
    finally:
        acting.serving.reset(token)  # type: ignore[arg-type]


def test_an_act_that_the_table_does_not_know_is_for_nobody() -> None:
    token = _acting(User.objects.create_user("someone", is_staff=True))
    try:
        with pytest.raises(Forbidden):
            audit.record("moon.shoot", "moon", actor="user:someone")
    finally:
        acting.serving.reset(token)  # type: ignore[arg-type]


def test_programs_and_other_edges_have_rules_of_their_own() -> None:
    rights.check("queue.pause")
    token = _acting(User.objects.create_user("someone"), path="/v1/jobs")
    try:
        rights.check("queue.pause")
    finally:
        acting.serving.reset(token)  # type: ignore[arg-type]


def test_every_audited_act_is_in_the_table() -> None:
    source = "\n".join(
        path.read_text("utf-8")
        for folder in ("tenants", "queue/jobqueue", "dlq")
        for path in (ROOT / folder).rglob("*.py")
        if "migrations" not in path.parts and path.name != "rights.py"
    )
    literal = re.findall(r"(?:record|record_many|_audit|_record)\(\s*f?\"([a-z_]+\.[a-z_]+)\"", source)
    literal += re.findall(r"\b(?:verb|action|ACTION)(?:: \w+)? = \"([a-z_]+\.[a-z_]+)\"", source)
    literal += re.findall(r"\bverb = .* else \"([a-z_]+\.[a-z_]+)\"", source)
    assert len(literal) > 15
    assert {"quota.revert", "permission.change"} <= set(literal)
    assert set(literal) - {"audit.seal"} <= set(rights.NEEDED)


def test_shards_are_the_business_of_no_group() -> None:
    for action, needed in rights.NEEDED.items():
        if action.startswith("shard."):
            assert [group for group in GROUPS if needed in rights_cast.granted(group)] == [], action


def test_every_needed_permission_exists() -> None:
    known = User.objects.create_superuser("root", "", "x").get_all_permissions()
    needed = {name for names in rights.NEEDED.values() for name in names.split("|") if name}
    assert needed <= known


def test_nobody_s_group_may_delete_jobs_or_change_the_audit() -> None:
    forbidden = re.compile(
        r"(delete_(job|readyjob|lease|result|deadletter|attempt)|(add|change|delete)_auditentry)"
    )
    for group in GROUPS:
        assert [name for name in rights_cast.granted(group) if forbidden.search(name)] == []


OWN = {"codes", "codes_picture"}  # about nothing but one's own account


def test_screens_about_one_s_own_account_are_for_all_staff_and_nobody_else(
    outsiders: dict[str, Client],
) -> None:
    assert {one.name for one in frame._screens.values() if one.permission is None} == OWN
    bare = outsiders["bare"]
    assert [bare.get(reverse(f"admin:{name}")).status_code for name in sorted(OWN)] == [200, 404]
    assert {Client().get(reverse(f"admin:{name}")).status_code for name in OWN} == {302}


@pytest.mark.parametrize("name", sorted(set(frame._screens) - OWN))
def test_a_screen_is_closed_to_staff_without_its_permission(name: str, outsiders: dict[str, Client]) -> None:
    """Also to whoever is not logged in; for a name in the address that there is not, before it is looked up."""
    one = frame._screens[name]
    address = re.sub(r"<\w+:\w+>", "x", f"/admin/{one.route}")
    assert outsiders["bare"].get(address).status_code == 403
    assert Client().get(address).status_code == 302
    assert get_resolver().resolve(address).url_name == name


def test_the_menu_shows_what_one_may_open(members: dict[str, Client]) -> None:
    for group, client in members.items():
        text = client.get(reverse("admin:index")).content.decode()
        addresses = re.findall(r'<li><a href="([^"]+)"', text.split('class="screens"')[1].split("</nav>")[0])
        assert len(addresses) >= 5
        for address in addresses:
            assert client.get(address).status_code == 200, (group, address)
