attempt, generation, crashes, lapses, releases, reconcile, checkpoint
