"""What an operator may do: the permission behind each audited act. The one table; a test compares it with the verbs.

Every act of weight leaves an entry in the audit, within its own transaction. So this is asked there: a page that forgot
to ask cannot do what its user may not. Programs on the machine act without an account; a token's scopes and a tenant's
roles are checked by their own edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jobsplatform import acting
from jobsplatform.errors import Forbidden

ITS_PAGE: Final = ""  # Django's own pages of users, groups and memberships ask by themselves

# act → permission, or several with "|": any of them
NEEDED: Final[Mapping[str, str]] = {
    "tenant.create": "tenants.add_tenant",
    "tenant.pause": "tenants.change_tenant",
    "tenant.resume": "tenants.change_tenant",
    "tenant.suspend": "tenants.change_tenant",
    "tenant.reinstate": "tenants.change_tenant",
    "quota.set": "tenants.change_quota",
    "quota.revert": "tenants.change_quota",
    "token.create": "tenants.add_apitoken",
    "token.rotate": "tenants.change_apitoken",
    "token.revoke": "tenants.change_apitoken",
    "signing_secret.reveal": "tenants.view_signingsecret",
    "signing_secret.rotate": "tenants.change_signingsecret",
    "permission.change": ITS_PAGE,
    "authenticator.add": ITS_PAGE,  # one's own
    "authenticator.remove": ITS_PAGE,
    "authenticator.reset": ITS_PAGE,  # by command alone
    "queue.create": "queue.add_queue",
    "queue.change": "queue.change_queue",
    "queue.pause": "queue.pause_queue",
    "queue.resume": "queue.pause_queue",
    "queue.pause_intake": "queue.pause_queue",
    "queue.resume_intake": "queue.pause_queue",
    "policy.set": "queue.change_queue",
    "policy.roll_out": "queue.change_queue",
    "policy.return": "queue.change_queue",
    "kind.change": "queue.change_jobkind",
    "kind.declare": "queue.change_jobkind",
    "dependency.set": "queue.change_dependency",
    "dependency.open": "queue.change_dependency",
    "dependency.close": "queue.change_dependency",
    "schedule.create": "queue.add_schedule",
    "schedule.change": "queue.change_schedule",
    "schedule.delete": "queue.delete_schedule",
    "schedule.run": "queue.change_schedule",
    "lane.release": "queue.change_lane",
    "worker.drain": "queue.drain_process",
    "shard.add": "queue.change_shard",  # no group's: superusers alone
    "shard.drain": "queue.change_shard",
    "shard.fence": "queue.change_shard",
    "shard.pin": "queue.change_shard",
    "shard.new_space": "queue.change_shard",
    "shard.restored": "queue.change_shard",
    "job.cancel": "queue.change_job",
    "job.payload_shown": "queue.view_payload|dlq.add_correction",  # who corrects must see what
    "job.retry_now": "queue.retry_job",
    "job.export": "queue.export_job",
    "audit.export": "tenants.export_auditentry",
    "group.assign": "dlq.add_correction",
    "group.snooze": "dlq.add_correction",
    "group.wake": "dlq.add_correction",
    "job.repair": "queue.change_job",
    "job.correct": "dlq.add_correction",
    "job.redrive": "dlq.add_redrive",
    "job.fork": "dlq.add_redrive",
    "campaign.create": "dlq.add_redrive",
    "campaign.pause": "dlq.add_redrive",
    "campaign.resume": "dlq.add_redrive",
    "campaign.abort": "dlq.add_redrive",
}


def check(action: str) -> None:
    """Raise Forbidden when this thread acts for a user of the admin who may not do that; an unknown act is for nobody
    but superusers.
    """
    user = acting.operator()
    if user is None:
        return
    needed = NEEDED.get(action)
    if needed == ITS_PAGE or user.is_superuser:
        return
    if needed is None or not any(user.has_perm(name) for name in needed.split("|")):
        lacking = (needed or action).replace("|", " or ")
        raise Forbidden(f"Your account may not do this: it lacks the permission {lacking}.")
