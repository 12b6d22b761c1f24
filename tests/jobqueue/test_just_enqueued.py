"""The answer to an enqueue is built without reading the job back: it must be what a read would say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobqueue import reads
from jobqueue.enqueue import enqueue
from jobqueue.types import FLEET
from tests import cast
from tests.cast import at

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"payload": '{"ä": 1.0}', "request_key": "k", "dependency": "smtp", "max_attempts": 9},
        {"payload": None, "payload_ref": "s3://bucket/key"},
        {"delay_s": 5, "expires_in_s": 60},
        {"not_before": at(-5), "deadline": at(60)},
        {"not_before": at(5) + timedelta(microseconds=1), "traceparent": "00-1-2-03"},
    ],
)
def test_the_answer_to_an_enqueue_is_what_a_read_says(asked: dict[str, Any]) -> None:
    job = cast.new_job(**asked)
    outcome = cast.accepted(enqueue([job], now=at(0))[0])
    read = reads.job(outcome.job_id, scope=FLEET)
    assert reads.just_enqueued(outcome, job) == read._replace(waited_s=0.0)


def test_a_replay_is_read_back() -> None:
    job = cast.new_job(request_key="k")
    enqueue([job], now=at(0))
    assert reads.just_enqueued(cast.accepted(enqueue([job], now=at(1))[0]), job) is None
