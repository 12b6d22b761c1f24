"""`manage.py runreaper`: takes back lost leases and places, expires late jobs, deletes what retention allows."""

from collections.abc import Sequence

from django.conf import settings

from jobqueue import processes, upkeep
from jobqueue.models import Process
from jobqueue.schedules import answers, firing
from jobsplatform.loop import Pass, batch_of
from tenants import logins

REAP_LIMIT = (
    1_000  # leases a pass at most; more waiting: the next pass follows as JOBS_REAP_PER_SECOND allows
)
SWEEP_LIMIT = 1_000  # reservations a pass
PURGE_LIMIT = 5_000  # finished jobs a pass


class Command(processes.BeatingCommand):
    kind = Process.Kind.REAPER
    help = "Take back lost leases, expire late jobs, apply retention; any number may run."

    def passes(self) -> Sequence[Pass]:
        rate = settings.JOBS_REAP_PER_SECOND
        some = batch_of(rate, REAP_LIMIT)
        return [
            Pass("reap", lambda: upkeep.reap(some), interval_s=0.4, full=some, rate_per_s=rate),
            Pass("expire", lambda: upkeep.expire(some), interval_s=0.4, full=some, rate_per_s=rate),
            Pass(
                "sweep_reservations",
                lambda: upkeep.sweep_reservations(SWEEP_LIMIT),
                interval_s=10,
                full=SWEEP_LIMIT,
            ),
            Pass("purge", lambda: upkeep.purge(PURGE_LIMIT), interval_s=60, full=PURGE_LIMIT),
            Pass("purge_fires", lambda: firing.purge(PURGE_LIMIT), interval_s=60, full=PURGE_LIMIT),
            Pass("purge_processes", lambda: processes.purge(PURGE_LIMIT), interval_s=60, full=PURGE_LIMIT),
            Pass("purge_logins", lambda: logins.purge(PURGE_LIMIT), interval_s=60, full=PURGE_LIMIT),
            Pass("purge_answers", lambda: answers.purge(PURGE_LIMIT), interval_s=60, full=PURGE_LIMIT),
        ]
