"""The calls of the API as conversations: what to send, when to repeat it, what the answers mean. No I/O here.

Every call that makes something has a key before it is first sent, so each of them may be repeated whatever became
of the tries before.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from jobsplatform_client import errors
from jobsplatform_client.exchange import Conversation, Members, Pause, Reply, Request, Send, encode
from jobsplatform_client.retry import Chance, Clock, Gate, Retry, Tries
from jobsplatform_client.values import (
    Accepted,
    Cancelled,
    Claimed,
    Completed,
    ErrorClass,
    Failed,
    Job,
    JobFilter,
    Lease,
    NewJob,
    Released,
    Renewed,
    Result,
    given,
    instant,
    new_key,
)

BATCH_JOBS_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 15 * 1024 * 1024  # the platform takes 16 MiB
SETTLE_ITEMS_MAX: Final = 1_000

BatchOutcome = Accepted | errors.JobsPlatformError


class Core:
    """One client's conversations; they share its `Retry` and its `Gate`."""

    def __init__(
        self, retry: Retry, *, clock: Clock = time.monotonic, chance: Chance = random.uniform
    ) -> None:
        self.retry, self.clock, self.chance = retry, clock, chance
        self.gate = Gate(retry, clock, chance)

    # How any call goes

    def tries(self, retry: Retry | None = None) -> Tries:
        return Tries(retry or self.retry, self.clock, self.chance)

    def ask(
        self, request: Request, tries: Tries | None = None, *, is_gated: bool = True
    ) -> Conversation[Reply]:
        """Send until it is answered with a success. Raises what ends the call.

        `is_gated` False is for heartbeats: they are few, and must not stand behind calls that wait.
        """
        tries = tries or self.tries()
        while True:
            while is_gated and (held_s := self.gate.wait_s()):
                tries.check(held_s)
                yield Pause(held_s)
            answer = None
            try:
                answer = yield Send(request)
            finally:
                if answer is None:
                    self.gate.leave()
            assert answer is not None, "the answer to a Send is a Reply or a NoReply"
            self.gate.note(answer)
            wait_s = tries.judge(answer)
            if wait_s is None:
                assert isinstance(answer, Reply)
                return answer
            yield Pause(wait_s)

    def post(
        self, path: str, members: Mapping[str, Any], tries: Tries | None = None, **options: Any
    ) -> Conversation[Members]:
        wait_s = float(members.get("wait_s") or 0)
        request = Request("POST", path, encode(members), wait_s=wait_s)
        return (yield from self.ask(request, tries, **options)).members()

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Conversation[Members]:
        return (yield from self.ask(Request("GET", path, query=query or {}))).members()

    # Producing

    def enqueue(self, job: NewJob) -> Conversation[Accepted]:
        key = job.request_key or new_key()
        try:
            made = yield from self.post("/v1/jobs", job.members(key))
        except errors.JobsPlatformError as error:
            error.request_key = key
            raise
        return Accepted(made["job_id"], key, made["replayed"])

    def enqueue_batch(self, jobs: Iterable[NewJob]) -> Conversation[list[Accepted]]:
        """In as many calls as it takes; the jobs that are open after one go into the next."""
        keys, texts = [], []
        for job in jobs:
            keys.append(job.request_key or new_key())
            texts.append(encode(job.members(keys[-1])))
        outcomes: list[BatchOutcome] = []
        for part in _parts(texts):
            first = len(outcomes)
            outcomes += yield from self._enqueue_part(keys[first : first + len(part)], part)
        accepted = [one for one in outcomes if isinstance(one, Accepted)]
        if len(accepted) < len(outcomes):
            raise errors.BatchIncomplete(outcomes)
        return accepted

    def _enqueue_part(self, keys: Sequence[str], texts: Sequence[bytes]) -> Conversation[list[BatchOutcome]]:
        tries = self.tries()
        outcomes: dict[int, BatchOutcome] = {}
        left = list(range(len(texts)))
        while left:
            body = b'{"jobs":[' + b",".join([texts[index] for index in left]) + b"]}"
            wait_s = 0.0
            try:
                reply = yield from self.ask(Request("POST", "/v1/jobs/batch", body), tries)
                results = _results(reply.members(), len(left))
                outcomes.update(
                    (index, _outcome(keys[index], one)) for index, one in zip(left, results, strict=True)
                )
                left = [index for index in left if _is_open(outcomes[index])]
                if left:
                    wait_s = tries.judge_part(_worst([outcomes[index] for index in left])) or 0.0
            except errors.JobsPlatformError as error:
                for index in left:
                    outcomes[index] = _ended(outcomes.get(index), error, keys[index])
                break
            if left:
                yield Pause(wait_s)
        return [outcomes[index] for index in range(len(texts))]

    def job(self, job_id: str, *, include_payload: bool = False) -> Conversation[Job]:
        query = {"include": "payload"} if include_payload else {}
        return Job.of((yield from self.get(_job(job_id), query)))

    def jobs_page(self, wanted: JobFilter, cursor: str | None) -> Conversation[tuple[list[Job], str | None]]:
        query = {**wanted.query(), "limit": "200", **given({"cursor": cursor})}
        page = yield from self.get("/v1/jobs", query)
        return [Job.of(one) for one in page["items"]], page["next"]

    def result(self, job_id: str) -> Conversation[Result]:
        found = yield from self.get(_job(job_id, "result"))
        return Result(found["outcome"], found["result"], found["generation"], instant(found["finished_at"]))

    def why(self, job_id: str) -> Conversation[dict[str, Any]]:
        return (yield from self.get(_job(job_id, "why")))

    def cancel(self, job_id: str, reason: str | None) -> Conversation[Cancelled]:
        tries = self.tries()
        try:
            done = yield from self.post(_job(job_id, "cancel"), given({"reason": reason}), tries)
        except errors.AlreadyFinished:
            if not tries.is_outcome_unknown:
                raise
            job = yield from self.job(job_id)  # an earlier try of ours may be what finished it
            if job.state != "cancelled":
                raise
            return Cancelled("cancelled")
        return Cancelled(done["state"], done.get("cancel_requested", False))

    # Working

    def claim(self, tries: Tries | None = None, **members: Any) -> Conversation[Claimed]:
        """`members` are the body's; None stands for absent. A `claim_key` is made up where none is given."""
        body = {"claim_key": new_key(), **given(members)}
        answer = yield from self.post("/v1/leases/claim", body, tries)
        server_time = datetime.fromisoformat(answer["server_time"])
        return Claimed(tuple(Lease.of(one) for one in answer["leases"]), server_time)

    def renew(
        self, lease: Lease, more: Mapping[str, Any], tries: Tries | None = None
    ) -> Conversation[Renewed]:
        """`more`: `lease_s`, `checkpoint` and `started`, as far as they are given."""
        done = yield from self.post(_job(lease.job_id, "renew"), {**lease.receipt(), **more}, tries)
        return _renewed(done)

    def renew_many(
        self, leases: Sequence[tuple[Lease, bool]], tries: Tries | None = None
    ) -> Conversation[list[Renewed | errors.Refused]]:
        """Renew leases, each with whether its job has begun, in one call. At most 1,000; one answer each."""
        items = [{"job_id": one.job_id, **one.receipt(), "started": has_begun} for one, has_begun in leases]
        done = yield from self.post("/v1/leases/settle", {"renew": items}, tries, is_gated=False)
        return [
            _renewed(one) if "problem" not in one else errors.refusal(one["status"], one["problem"])
            for one in _results(done, len(items))
        ]

    def complete(self, lease: Lease, result: object, tries: Tries | None = None) -> Conversation[Completed]:
        body = {**lease.receipt(), "result": result}
        done = yield from self.post(_job(lease.job_id, "complete"), body, tries)
        at = datetime.fromisoformat(done["completed_at"])
        return Completed(at, done["replayed"], done["late"])

    def fail(
        self,
        lease: Lease,
        error_class: ErrorClass,
        message: str,
        retry_after_s: int | None,
        tries: Tries | None = None,
    ) -> Conversation[Failed]:
        body = {
            **lease.receipt(),
            "error_class": error_class,
            "message": message,
            **given({"retry_after_s": retry_after_s}),
        }
        done = yield from self.post(_job(lease.job_id, "fail"), body, tries)
        return Failed(done["state"], instant(done["next_attempt_at"]), done["reason"], done["replayed"])

    def release(
        self, lease: Lease, delay_s: int | None, tries: Tries | None = None
    ) -> Conversation[Released]:
        body = {**lease.receipt(), **given({"delay_s": delay_s})}
        done = yield from self.post(_job(lease.job_id, "release"), body, tries)
        return Released(done["state"], done["replayed"])


def _job(job_id: str, verb: str = "") -> str:
    path = f"/v1/jobs/{quote(job_id, safe='')}"
    return f"{path}/{verb}" if verb else path


def _renewed(done: Mapping[str, Any]) -> Renewed:
    at = datetime.fromisoformat(done["expires_at"])
    return Renewed(at, done["cancel_requested"], done["give_back"])


# Parts of batches


def _results(members: Members, count: int) -> list[Mapping[str, Any]]:
    """One of each item that was sent. Raises NotUnderstood."""
    results = members["results"]
    if not isinstance(results, list) or len(results) != count:
        raise errors.NotUnderstood(f"an answer that has not a result for each of {count:,} items")
    return results


def _parts(texts: Sequence[bytes]) -> Iterable[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for text in texts:
        if part and (len(part) == BATCH_JOBS_MAX or size + len(text) > BATCH_BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text) + 1
    if part:
        yield part


def _outcome(key: str, item: Mapping[str, Any]) -> BatchOutcome:
    if "problem" not in item:
        return Accepted(item["job_id"], key, item["replayed"])
    error = errors.refusal(item["status"], item["problem"])
    error.request_key = key
    return error


def _is_open(outcome: BatchOutcome) -> bool:
    """Whether the same job must be sent again."""
    return isinstance(outcome, errors.LimitReached | errors.Unavailable | errors.UnknownOutcome)


def _worst(outcomes: Sequence[BatchOutcome]) -> Reply:
    """One answer for items that are open: unknown before unavailable before a limit."""
    refused = [one for one in outcomes if isinstance(one, errors.Refused)]
    worst = max(refused, key=lambda one: (one.status, isinstance(one, errors.UnknownOutcome)))
    return Reply(worst.status, encode(worst.problem))


def _ended(last: BatchOutcome | None, error: errors.JobsPlatformError, key: str) -> errors.JobsPlatformError:
    """What an item that is still open when the call ends is told: its own last word if it has one."""
    own = last if isinstance(last, errors.JobsPlatformError) else _copy(error)
    own.request_key, own.tries = key, error.tries
    own.is_outcome_unknown = error.is_outcome_unknown
    return own


def _copy(error: errors.JobsPlatformError) -> errors.JobsPlatformError:
    if isinstance(error, errors.Refused):
        return type(error)(error.status, error.problem, error.retry_after_s)
    return type(error)(*error.args)
