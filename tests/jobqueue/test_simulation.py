"""The simulation: deterministic, true to limits, and a command that says when an expectation is missed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from django.core.management import CommandError, call_command

from jobqueue.policy.simulated import Pool, Run, Setup, Source, TenantRules
from jobqueue.policy.simulation import simulate
from jobqueue.policy.types import SERVICE_TIME, BandPolicy, Chosen, Policy
from jobqueue.simulating import files
from jobqueue.simulating.measures import of_bands, of_tenants
from jobqueue.simulating.tables import SetupError
from jobqueue.simulating.targets import filled
from tests.policy_cast import FIVE, HNL

ROOT = Path(__file__).resolve().parent.parent.parent
MINUTES_LONG = {"short-and-long"}


def endless(band: int = 0, tenant: str = "acme", **changes: Any) -> Source:
    return Source(tenant=tenant, band=band, is_endless=True, **changes)


def run(*sources: Source, policy: Policy = HNL, slots: int = 10, **changes: Any) -> Run:
    pools = changes.pop("pools", [Pool(slots=slots)])
    return simulate(Setup(policy=policy, sources=sources, pools=pools, **({"seconds": 10} | changes)))


def started(of: Run, key: str = "tenant") -> Counter[Any]:
    return Counter(getattr(start, key) for start in of.starts)


# The run


def test_one_setup_gives_one_run_and_another_seed_another() -> None:
    source = Source(tenant="acme", band=0, rate_per_s=90, is_random=True, is_exponential=True)
    assert run(source, seed=7).starts == run(source, seed=7).starts
    assert run(source, seed=7).starts != run(source, seed=8).starts


def test_every_job_is_started_once_or_still_waits() -> None:
    done = run(
        Source(tenant="acme", band=0, backlog=500, rate_per_s=70), Source(tenant="b", band=2, backlog=90)
    )
    assert len(done.starts) + len(done.left) == sum(done.offered.values()) == 500 + 700 + 90


def test_slots_are_never_idle_while_work_waits_and_never_more_than_there_are() -> None:
    done = run(endless(service_s=0.25), slots=4)
    assert len(done.starts) == 4 * 10 / 0.25
    assert all(sum(s.at_s <= t < s.at_s + s.service_s for s in done.starts) == 4 for t in (0.1, 3.3, 9.9))


def test_a_tenants_limit_holds_over_all_bands_and_a_sources_in_its_own() -> None:
    done = run(
        *(endless(band) for band in range(3)),
        endless(0, "globex", max_running=3),
        endless(1, "globex"),
        tenants={"acme": TenantRules(max_running=2)},
    )
    assert done.most_running["acme"] == 2
    assert done.most_running["globex"] == 8
    in_band_h = [s for s in done.starts if s.tenant == "globex" and s.band == 0]
    assert max(sum(o.at_s <= s.at_s < o.at_s + 0.0999 for o in in_band_h) for s in in_band_h) == 3


def test_tenants_at_their_limit_hide_nobody() -> None:
    """More gated tenants than a claim looks at before one that could start."""
    gated = [endless(0, f"a{number:02}", service_s=100, max_running=0) for number in range(40)]
    assert started(run(*gated, endless(0, "z"), slots=1))["z"] == 100


def test_a_pool_takes_only_its_bands_and_kinds() -> None:
    done = run(
        *(endless(band, kind=kind) for band in range(3) for kind in ("mail", "film")),
        pools=[
            Pool(slots=2, name="urgent", max_priority=0),
            Pool(slots=2, name="mail", kinds=frozenset({"mail"})),
        ],
    )
    assert {s.band for s in done.starts if s.pool == "urgent"} == {0}
    share = Counter(s.band for s in done.starts if s.pool == "mail")
    assert [round(share[band] / share.total() * 6) for band in range(3)] == [3, 2, 1]


def test_jobs_that_others_hold_do_not_skew_the_shares() -> None:
    done = run(*(endless(band) for band in range(3)), passed_over=0.3, seconds=60)
    count = started(done, "band")
    shares = [count[band] / count.total() for band in range(3)]
    assert shares == pytest.approx([1 / 2, 1 / 3, 1 / 6], abs=0.02)


def test_a_claim_that_takes_its_time_costs_that_time() -> None:
    done = run(endless(), pools=[Pool(slots=1, claim_every_s=0.05)], seconds=30)
    assert len(done.starts) == 300
    assert len(run(endless(), pools=[Pool(slots=1, claim_every_s=0.15)], seconds=30).starts) == 200


def test_work_that_ends_is_withdrawn_and_lends_its_share() -> None:
    done = run(endless(0, until_s=5), endless(1), seconds=10)
    late = Counter(s.band for s in done.starts if s.at_s > 5)
    assert set(late) == {1}
    assert {s.chosen for s in done.starts if s.at_s > 5} == {Chosen.LENT, Chosen.SHARE}


def test_service_time_shares_slots_and_turns_do_not() -> None:
    sources = endless(1, "long", service_s=3), endless(1, "short", service_s=0.05)
    costed = Policy(1, HNL.bands, cost_model=SERVICE_TIME)
    by_service, by_turns = (run(*sources, policy=policy, seconds=120) for policy in (costed, HNL))
    [long, short] = of_tenants(by_service)
    assert long.share == pytest.approx(0.5, abs=0.05)
    assert of_tenants(by_turns)[0].slot_s > 40 * of_tenants(by_turns)[1].slot_s
    assert [long.target, short.target] == pytest.approx([0.5, 0.5])


def test_weights_of_tenants_share_service_too() -> None:
    costed = Policy(1, HNL.bands, cost_model=SERVICE_TIME)
    done = run(
        endless(1, "a", service_s=1, weight=3), endless(1, "b", service_s=0.1), policy=costed, seconds=120
    )
    assert of_tenants(done)[0].share == pytest.approx(0.75, abs=0.05)


def test_a_tenant_whose_one_job_took_hours_comes_back_within_the_capped_debt() -> None:
    costed = Policy(1, [BandPolicy("only")], cost_model=SERVICE_TIME)
    once = Source(tenant="a", band=0, backlog=1, service_s=40_000)
    later = Source(tenant="a", band=0, backlog=1, from_s=40_001, kind="small")
    done = run(once, later, endless(0, "b", service_s=50), policy=costed, slots=2, seconds=50_000)
    [_, second] = [start for start in done.starts if start.tenant == "a"]
    assert second.waited_s <= 3_600 / 2 + 100  # two slots serve the others


def test_ageing_bounds_waits_that_grow_without_it() -> None:
    sources = Source(tenant="a", band=0, rate_per_s=120), Source(tenant="b", band=2, rate_per_s=8)
    bands = [BandPolicy("H", 50), BandPolicy("N", 49), BandPolicy("L", 1)]
    waits = [
        max(
            s.waited_s
            for s in run(*sources, policy=Policy(1, bands, ageing_s=ageing_s), seconds=90).starts
            if s.band
        )
        for ageing_s in (10, None)
    ]
    assert waits[0] < 12 < 40 < waits[1]


# Figures


def test_a_gap_counts_only_while_something_could_be_started() -> None:
    done = run(
        Source(tenant="acme", band=0, backlog=1), Source(tenant="acme", band=0, backlog=1, from_s=8), slots=1
    )
    [figures] = of_bands(done)
    assert figures.longest_gap_s == 0
    blocked = run(endless(0, service_s=6), Source(tenant="b", band=2, backlog=1, from_s=1), slots=1)
    assert of_bands(blocked)[1].longest_gap_s == 9


def test_figures_of_ages_and_of_what_still_waits() -> None:
    [figures] = of_bands(run(Source(tenant="acme", band=1, backlog=30, service_s=1), slots=2))
    assert (figures.starts, figures.waiting, figures.slot_s) == (20, 10, 20)
    assert (figures.age_p50_s, figures.age_max_s, figures.oldest_waiting_s) == (5, 9, 10)


def test_targets_follow_the_work_that_there_is() -> None:
    done = run(endless(0, until_s=5), endless(2), seconds=10)
    assert [f.target for f in of_bands(done)] == [
        pytest.approx(0.375, abs=0.02),
        pytest.approx(0.625, abs=0.02),
    ]


def test_filling_by_weight_lends_what_is_not_used() -> None:
    assert filled(60, {"h": 3, "n": 2, "l": 1}, {"h": 99, "n": 99, "l": 99}) == {"h": 30, "n": 20, "l": 10}
    assert filled(60, {"h": 3, "n": 2, "l": 1}, {"h": 99, "n": 0, "l": 99}) == {"h": 45, "n": 0, "l": 15}
    assert filled(60, {"h": 3, "n": 2}, {"h": 6, "n": 9}) == {"h": 6, "n": 9}


# Scenarios


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n in MINUTES_LONG else ()) for n in files.shipped_names()],
)
def test_every_scenario_shows_what_it_is_expected_to(name: str) -> None:
    scenario = files.scenario(name, files.shipped(name))
    done = simulate(scenario.setup)
    findings = [expectation(done) for expectation in scenario.expectations]
    assert findings
    assert [finding for finding in findings if not finding.holds] == []


@pytest.mark.parametrize("name", ["borrowing", "burst-and-arrivals", "flood", "short-and-long-by-turns"])
def test_the_pictures_of_the_documentation_are_what_the_command_draws(name: str, tmp_path: Path) -> None:
    """Made again as docs/scheduling.md says, when the policy or the drawing changes."""
    simulated("--scenario", name, "--svg", str(tmp_path / "now.svg"))
    drawn = ROOT / "docs" / "img" / f"{name}.svg"
    assert (tmp_path / "now.svg").read_text(encoding="utf-8") == drawn.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("document", "word"),
    [
        ({}, "needs sources"),
        ({"sources": [{"band": "H"}]}, "band is one of P0, P1"),
        ({"sources": [{"band": "P1"}]}, "needs a backlog"),
        ({"sources": [{"band": "P1", "backlog": -1}]}, "backlog is a whole number"),
        ({"sources": [{"band": "P1", "backlog": True}]}, "backlog is a whole number"),
        ({"sources": [{"band": "P1", "backlog": 1, "colour": "red"}]}, "there is no colour"),
        ({"sources": [{"band": "P1", "rate_per_s": float("nan")}]}, "rate_per_s is a number"),
        ({"sources": [{"band": "P1", "rate_per_s": 1e9}]}, "the most is 2,000,000"),
        ({"sources": [{"band": "P1", "backlog": "endless", "service_s": 1e-5}]}, "the most is 2,000,000"),
        ({"sources": [{"band": "P1", "backlog": 1}], "policy": 5}, "policy is a table"),
        ({"sources": [{"band": "P1", "backlog": 1}], "policy": {"preset": "six"}}, "preset is one of"),
        (
            {"sources": [{"band": "P1", "backlog": 1}], "workers": 0},
            "workers is a whole number of at least 1",
        ),
        ({"sources": [{"band": "P1", "backlog": 1}], "expect": [{"kind": "luck"}]}, "kind is one of"),
        ({"sources": [{"band": "P1", "backlog": 1}], "expect": [{"kind": "rate"}]}, "needs equals"),
        (
            {
                "sources": [{"band": "P1", "backlog": 1}],
                "expect": [{"kind": "rate", "bands": ["X"], "equals": 1}],
            },
            "there is no X",
        ),
    ],
)
def test_a_wrong_setup_is_refused_by_the_name_of_its_key(document: dict[str, Any], word: str) -> None:
    with pytest.raises(SetupError, match=word):
        files.scenario("wrong", document)


# The command


def simulated(*args: str) -> str:
    out = StringIO()
    call_command("simulate", *args, stdout=out)
    return out.getvalue()


def test_the_command_prints_the_seed_and_figures_of_bands_and_tenants() -> None:
    text = simulated("--scenario", "five-tenants", "--seed", "42")
    assert "seed 42" in text
    for word in ("target", "actual", "p99 s", "gap s", "t5", "held"):
        assert word in text


def test_flags_alone_make_a_setup() -> None:
    sources = ["--source", "tenant=a,band=H,rate_per_s=10", "--source", "tenant=b,band=L,backlog=endless"]
    document = json.loads(
        simulated("--preset", "hnl", *sources, "--workers", "2", "--seconds", "5", "--json")
    )
    assert document["seconds"] == 5
    assert {band["band"]: band["starts"] for band in document["bands"]} == {"H": 50, "L": 50}
    assert [one["tenant"] for one in document["tenants"]] == ["a", "b"]


def test_a_missed_expectation_exits_1_and_says_so() -> None:
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("simulate", "--scenario", "five-tenants", "--workers", "3", "--json", stdout=out)
    assert ended.value.code == 1
    document = json.loads(out.getvalue())
    assert (document["holds"], document["expectations"][0]["holds"]) == (False, False)


def test_a_picture_is_well_formed_and_names_what_it_shows(tmp_path: Path) -> None:
    path = tmp_path / "burst.svg"
    simulated("--scenario", "twelve-at-once", "--svg", str(path))
    picture = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    words = " ".join(picture.itertext())
    assert "H 50.0% for 50.0%" in words
    assert "starts a second" in words


def test_a_file_is_a_setup(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('seconds = 2\n[[sources]]\nband = "P2"\nbacklog = 7\n', encoding="utf-8")
    document = json.loads(simulated(str(path), "--json"))
    assert (document["scenario"], document["starts"], document["holds"]) == ("mine", 7, True)


@pytest.mark.parametrize("text", ["seconds = ", '[[sources]]\nband = "X"\nbacklog = 1'])
def test_a_file_that_is_no_setup_is_an_error_and_no_traceback(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CommandError):
        simulated(str(path))


def test_the_list_names_every_scenario_with_its_sense() -> None:
    lines = simulated("--list").splitlines()
    assert [line.split()[0] for line in lines] == files.shipped_names()


def test_the_policy_and_its_simulation_need_the_standard_library_alone() -> None:
    folder = Path(files.__file__).resolve().parent.parent / "policy"
    code = (
        "import sys, types; from pathlib import Path\n"
        "package = types.ModuleType('jobqueue'); package.__path__ = [sys.argv[1]]\n"
        "sys.modules['jobqueue'] = package\n"
        "import jobqueue.policy.simulation\n"
        "assert 'django' not in sys.modules"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(folder.parent)], check=True)


def test_the_floor_is_seen_in_why_starts_were_chosen() -> None:
    done = run(Source(tenant="a", band=0, rate_per_s=120), endless(4), policy=FIVE, seconds=30)
    count = started(done, "chosen")
    assert count[Chosen.STRICT] >= 0.94 * count.total()
    assert count[Chosen.FLOOR] >= 0.05 * count.total()
