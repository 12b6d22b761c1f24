"""`manage.py rundispatcher`: promotes due jobs, folds the ledger into rollups, retires empty lanes."""

from collections.abc import Sequence

from jobqueue import hooks, upkeep
from jobsplatform.loop import LoopCommand, Pass

PROMOTE_LIMIT = 1_000  # jobs a pass; more waiting: the next pass follows at once
FOLD_LIMIT = 10_000  # ledger rows a pass


class Command(LoopCommand):
    help = "Promote due jobs and keep the ledger folded; any number may run."

    def passes(self) -> Sequence[Pass]:
        return [
            Pass("promote", lambda: upkeep.promote(PROMOTE_LIMIT), interval_s=0.1, full=PROMOTE_LIMIT),
            Pass("fold", lambda: upkeep.fold(FOLD_LIMIT), interval_s=1, full=FOLD_LIMIT),
            Pass("sweep_lanes", upkeep.sweep_lanes, interval_s=1),
            Pass("recheck_lanes", upkeep.recheck_lanes, interval_s=60),
            *hooks.passes(),
        ]
