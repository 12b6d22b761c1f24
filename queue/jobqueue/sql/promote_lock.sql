-- promote_lock: one promoter at a time spends retry budgets, so that what it counts is still so when it spends. Another
-- promotes meanwhile what needs no budget.  locks: held to the end of the transaction; nobody waits for it
SELECT set_config('jobsplatform.spends_budgets',
    pg_try_advisory_xact_lock(hashtextextended('queue.promote.budgets', 0))::text, true)
