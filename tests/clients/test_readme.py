"""The examples of the client's README and the plain worker of the docs, run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from jobsplatform.scopes import TABLE
from jobsplatform_client import Client, Job, JobFilter
from tests.chaos.harness import ROOT, Platform, until
from tests.clients.conftest import QUICK
from tests.clients.cutter import AFTER, PASS, ReplyCutter

README = (ROOT / "clients" / "python" / "README.md").read_text()
REMOTE = (ROOT / "docs" / "remote-workers.md").read_text()


def _sections(text: str) -> dict[str, list[str]]:
    """Heading → its Python blocks."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    found = {
        title: re.findall(r"```python\n(.*?)```", body, re.DOTALL)
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {title: blocks for title, blocks in found.items() if blocks}


SECTIONS = _sections(README)
PRELUDE = 'from jobsplatform_client import Client\nclient = Client("http://127.0.0.1:8000", "jp_…")\n'


class Reader:
    """Runs sections of the README, as somebody with a token."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self.client = Client(url, token, retry=QUICK)
        self._opened = [self.client]

    def run(self, *titles: str) -> dict[str, Any]:
        """The names that are left behind."""
        names: dict[str, Any] = {"__name__": "readme"}
        for block in [PRELUDE, *(block for title in titles for block in SECTIONS[title])]:
            text = block.replace("http://127.0.0.1:8000", self._url).replace("jp_…", self._token)
            text = re.sub(r"worker\.run\(\).*", "worker.run_until_idle()", text)
            exec(compile(text, "README.md", "exec", dont_inherit=True), names)
            self._opened += [one for one in names.values() if isinstance(one, Client)]
        return names

    def kinds(self, *kinds: str) -> list[Job]:
        return [job for kind in kinds for job in self.client.jobs(JobFilter(kind=kind))]

    def close(self) -> None:
        for one in self._opened:
            one.close()


@pytest.fixture
def reader(platform: Platform, token: str) -> Iterator[Reader]:
    with closing(Reader(f"http://127.0.0.1:{platform.port}", token)) as reader:
        yield reader


@pytest.fixture
def producer(platform: Platform) -> Iterator[Reader]:
    """On a tenant of its own: what it makes nobody works."""
    token = platform.tenant("readers")
    with closing(Reader(f"http://127.0.0.1:{platform.port}", token)) as reader:
        yield reader


def test_every_section_with_code_is_run_here() -> None:
    assert set(SECTIONS) == {"Enqueue", "Errors", "Work", "Messages", "asyncio"}


def test_the_examples_of_enqueueing_and_of_errors(
    producer: Reader, capsys: pytest.CaptureFixture[str]
) -> None:
    names = producer.run("Enqueue", "Errors")
    assert len(producer.kinds("email.send")) == 2_502
    assert names["job"].state == "ready"
    assert producer.client.job(names["later"].job_id).state == "cancelled"
    assert f"this key names another job: {names['made'].job_id}" in capsys.readouterr().out


def test_the_examples_of_working_end_their_jobs(reader: Reader) -> None:
    reader.client.enqueue("email.send", {"to": "a@example.org"})
    names = reader.run("Work")
    payment = names["payment"].job_id

    def is_paid() -> bool:
        names["worker"].run_until_idle()
        return reader.client.job(payment).state == "succeeded"

    until(is_paid, 60)
    assert reader.client.result(payment).result == {"charged": 1_250}
    states = [job.state for job in reader.kinds("email.send", "pages.import", "card.charge")]
    assert states == ["succeeded"] * 3


def test_the_example_of_asyncio_ends_its_job(reader: Reader) -> None:
    reader.run("asyncio")
    (job,) = reader.kinds("email.render")
    assert reader.client.result(job.job_id).result == "<p>receipt</p>"


@pytest.mark.skipif(
    "POST /v1/queues/{queue}/messages" not in TABLE, reason="this platform has no messages face"
)
def test_the_example_of_messages_empties_its_queue(reader: Reader, platform: Platform) -> None:
    platform.manage("createqueue", "mail")
    names = reader.run("Messages")
    assert names["message"].body == b"any bytes"
    assert names["mail"].receive() == []


# docs/remote-workers.md

(PLAIN,) = re.findall(r"```python\n(.*?)```", REMOTE, re.DOTALL)


def test_the_plain_worker_has_forty_lines_and_the_standard_library() -> None:
    assert len(PLAIN.splitlines()) <= 40
    imports = re.findall(r"^import (.+)$", PLAIN, re.MULTILINE)
    names = {name.strip().split(".")[0] for line in imports for name in line.split(",")}
    assert names <= sys.stdlib_module_names
    assert "from " not in PLAIN


def test_the_plain_worker_does_its_jobs_though_answers_are_lost(
    platform: Platform, token: str, cutter: ReplyCutter
) -> None:
    seen: set[str] = set()

    def lose_the_first(method: str, path: str) -> str:
        is_first = path not in seen
        seen.add(path)
        return AFTER if is_first else PASS

    cutter.choose = lose_the_first
    environment = {"API": f"{cutter.url}/v1", "TOKEN": token, "PATH": os.environ["PATH"]}
    with Client(f"http://127.0.0.1:{platform.port}", token, retry=QUICK) as client:
        good = [client.enqueue("greet", {"name": name}).job_id for name in ("Ada", "Grace")]
        bad = client.enqueue("greet", {}, max_attempts=1).job_id
        with subprocess.Popen([sys.executable, "-c", PLAIN], env=environment) as worker:
            try:
                until(lambda: {client.job(one).state for one in (*good, bad)} <= {"succeeded", "dead"}, 60)
                worker.terminate()  # it ends after its long poll
                assert worker.wait(60) == 0
            finally:
                worker.kill()
        assert [client.result(one).result for one in good] == ["Hello Ada", "Hello Grace"]
        assert [client.job(one).attempts_used for one in (*good, bad)] == [1, 1, 1]
        assert client.job(bad).dead_reason == "exhausted"
    assert cutter.cuts[AFTER] == 4  # a claim, two completions, a failure
