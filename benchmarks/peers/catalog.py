"""Which queues are measured, in which versions, and how much each is given to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Peer:
    """`packages` empty: it runs in this environment. `jobs` of one drain; `singles` calls; one_command: see adapter."""

    name: str
    adapter: str
    packages: tuple[str, ...] = ()
    jobs: int = 20_000
    singles: int = 2_000
    environment: dict[str, str] = field(default_factory=dict)
    python_min: tuple[int, int] = (3, 11)
    one_command: bool = False

    @property
    def is_node(self) -> bool:
        return self.adapter.endswith(".mjs")


OURS: Final = "jobsplatform"
FLOOR: Final = "SQL floor"
_NODE: Final = ("graphile-worker@0.18.0", "pg-boss@12.38.0", "pg@8.23.1")
_PSYCOPG: Final = "psycopg[binary,pool]==3.3.9"

PEERS: Final = {
    peer.name: peer
    for peer in (
        Peer(OURS, "of_jobsplatform", jobs=40_000, one_command=True),
        Peer(
            "jobsplatform + upkeep",
            "of_jobsplatform",
            jobs=40_000,
            one_command=True,
            environment={"OUR_UPKEEP": "1"},
        ),
        Peer(FLOOR, "of_floor", jobs=60_000),
        Peer("graphile-worker", "of_graphile_worker.mjs", _NODE, jobs=60_000),
        Peer(
            "graphile-worker (plain)",
            "of_graphile_worker.mjs",
            _NODE,
            jobs=10_000,
            environment={"GRAPHILE_PLAIN": "1"},
        ),
        Peer("pg-boss", "of_pg_boss.mjs", _NODE, jobs=30_000),
        Peer("pgqueuer", "of_pgqueuer", ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop"), jobs=40_000),
        Peer("Oban for Python", "of_oban", ("oban==0.7.0", _PSYCOPG), jobs=15_000, python_min=(3, 12)),
        Peer("chancy", "of_chancy", ("chancy==0.26.0",), jobs=15_000),
        Peer("procrastinate", "of_procrastinate", ("procrastinate==3.10.0", _PSYCOPG), jobs=4_000),
        Peer("DBOS", "of_dbos", ("dbos==3.4.0",), jobs=3_000, singles=1_000),
        Peer(
            "django-q2",
            "of_django_q2",
            ("django-q2==1.11.1", "Django>=5.2,<6", _PSYCOPG),
            jobs=3_000,
            singles=1_000,
            one_command=True,
        ),
        Peer(
            "django-tasks-db",
            "of_django_tasks",
            ("django-tasks-db==0.13.0", "django-tasks==0.12.0", "Django>=5.2,<6", _PSYCOPG),
            jobs=1_500,
            singles=1_000,
        ),
    )
}
