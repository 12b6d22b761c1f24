"""What has piled up in an outage is worked off no faster than the settings say."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobqueue.management.commands.rundispatcher import Command as Dispatcher
from jobqueue.management.commands.runreaper import Command as Reaper
from jobsplatform import loop
from jobsplatform.loop import Pass, Stop
from tests import cast

AGO = datetime.now(UTC) - timedelta(minutes=1)


def duty(command: loop.LoopCommand, name: str) -> Pass:
    [found] = [one for one in command.passes() if one.name == name]
    return found


def run(one: Pass, seconds: float) -> None:
    stop = Stop()
    timer = threading.Timer(seconds, stop.request)
    timer.start()
    loop.run_loop([one], stop)
    timer.join()


def test_promotion_reaping_and_expiry_are_paced_by_their_settings(settings: Any) -> None:
    settings.JOBS_PROMOTE_PER_SECOND, settings.JOBS_REAP_PER_SECOND = 500, 100
    promote, reap, expire = duty(Dispatcher(), "promote"), duty(Reaper(), "reap"), duty(Reaper(), "expire")
    assert (promote.rate_per_s, promote.full) == (500, 100)
    assert (reap.rate_per_s, reap.full) == (expire.rate_per_s, expire.full) == (100, 20)


@pytest.mark.django_db(transaction=True)
def test_due_jobs_are_promoted_at_the_rate_and_no_faster(settings: Any) -> None:
    settings.JOBS_PROMOTE_PER_SECOND = 100
    cast.enqueue_many(200, now=AGO, delay_s=1)
    run(duty(Dispatcher(), "promote"), 1.0)
    ((promoted,),) = cast.read("SELECT count(*) FROM queue_readyjob")
    assert 20 <= promoted <= 140, "a fifth of a second's work at once, then by the rate"


@pytest.mark.django_db(transaction=True)
def test_lapsed_leases_are_taken_back_at_the_rate_and_no_faster(settings: Any) -> None:
    settings.JOBS_REAP_PER_SECOND = 100
    cast.enqueue_many(200, now=AGO)
    assert len(cast.claim(limit=100, now=AGO, lease_s=1) + cast.claim(limit=100, now=AGO, lease_s=1)) == 200
    run(duty(Reaper(), "reap"), 1.0)
    ((taken,),) = cast.read("SELECT count(*) FROM queue_readyjob")
    assert 20 <= taken <= 140
