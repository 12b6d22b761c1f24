"""Bounds of the wire contract, with their units."""

from datetime import timedelta

PAYLOAD_BYTES_MAX = 131_072  # of one payload or result, as sent
PAYLOAD_REF_CHARS_MAX = 2_048
CHECKPOINT_BYTES_MAX = 16 * 1024
MESSAGE_BYTES_MAX = 8 * 1024  # of a failure's message; longer ones are cut
REASON_CHARS_MAX = 2_000  # of an operator's note or a cancel's reason
BATCH_JOBS_MAX = 1_000
SETTLE_ITEMS_MAX = 1_000
CLAIM_LIMIT_MAX = 100  # of one HTTP claim
WORKER_CLAIM_LIMIT_MAX = 500  # of one claim by `runworker`
LEASE_SECONDS_MAX = 43_200
WAIT_SECONDS_MAX = 20
WORKER_CHARS_MAX = 100
CLAIM_KEY_CHARS_MAX = 100
PAGE_MAX = 200
PAGE_DEFAULT = 50
HORIZON = timedelta(days=3_653)  # not_before and deadline may lie this far ahead: ten years
CRASHES_DEFAULT = 3  # of a queue's max_crashes
UNSTARTED_LAPSES_MAX = 20  # lapses of leases that nobody started, before they count as crashes
REREADS_MAX = 5  # of a job that is between two places; then 503
CLAIM_PROBES_MAX = 512  # lanes that one claim may look at
LANES_MAX = (
    500  # of one tenant in a band of a queue, on a shard; fewer than a claim looks at, so that it meets all
)

JOB_BODY_BYTES_MAX = 256 * 1024
BATCH_BODY_BYTES_MAX = 16 * 1024 * 1024
OTHER_BODY_BYTES_MAX = 64 * 1024

MESSAGE_BODY_BYTES_MAX = 131_072  # decoded
MESSAGE_DELIVERIES_MAX = 5  # failed ones; then dead letter
MESSAGE_EXPIRY_SECONDS = 345_600  # four days
RECEIPTS_MAX = 1_000  # in one call
