"""`manage.py rundispatcher`: promotes due jobs, fires schedules, judges dependencies, folds the ledger."""

from collections.abc import Sequence

from django.conf import settings

from jobqueue import dependencies, hooks, judging, policies, processes, upkeep
from jobqueue.models import Process
from jobqueue.schedules import firing, register
from jobqueue.shards import keys, shares
from jobqueue.shards import register as register_of_shards
from jobsplatform.loop import Pass, batch_of
from tenants import audit, registry

PROMOTE_LIMIT = (
    1_000  # jobs a pass at most; more waiting: the next pass follows as JOBS_PROMOTE_PER_SECOND allows
)
FIRE_LIMIT = (
    1_000  # schedules a pass; after a quarter of it, with others at the rest, the next follows at once
)
FOLD_LIMIT = 10_000  # ledger rows a pass
SAMPLE_LIMIT = 200  # limits of tenants a pass
DEPTH_LIMIT = (
    100  # lanes a pass: with over 1,200 that hold jobs, a round over them takes longer than its minute
)


class Command(processes.BeatingCommand):
    kind = Process.Kind.DISPATCHER
    help = "Promote due jobs, fire schedules and keep the ledger folded; any number may run."

    def passes(self) -> Sequence[Pass]:
        rate = settings.JOBS_PROMOTE_PER_SECOND
        some = batch_of(rate, PROMOTE_LIMIT)
        return [
            Pass("promote", lambda: upkeep.promote(some), interval_s=0.1, full=some, rate_per_s=rate),
            Pass("fire", lambda: firing.fire(FIRE_LIMIT), interval_s=0.5, full=FIRE_LIMIT // 4),
            Pass("sync_schedules", register.sync, interval_s=5),
            Pass("judge_dependencies", judging.judge, interval_s=0.25),
            Pass("end_pauses", policies.resume_due, interval_s=1),
            Pass("end_holds", dependencies.end_holds, interval_s=1),
            Pass("adopt_dependencies", dependencies.adopt, interval_s=5),
            Pass("fold", lambda: upkeep.fold(FOLD_LIMIT), interval_s=1, full=FOLD_LIMIT),
            Pass("sweep_lanes", upkeep.sweep_lanes, interval_s=1),
            Pass("repair_tenants", registry.repair, interval_s=5),
            Pass("repair_slots", register_of_shards.repair, interval_s=5),
            Pass("balance_shares", shares.balance, interval_s=1),
            Pass("date_moved_keys", keys.date_moved, interval_s=60),
            Pass("sample_usage", lambda: upkeep.sample_usage(SAMPLE_LIMIT), interval_s=5, full=SAMPLE_LIMIT),
            Pass("sample_depths", lambda: upkeep.sample_depths(DEPTH_LIMIT), interval_s=5),
            Pass("seal_audit", audit.seal, interval_s=60),
            Pass("recheck_lanes", upkeep.recheck_lanes, interval_s=60),
            *hooks.passes(),
        ]
