-- dependency_versions: which dependencies this shard knows, and by which version of their settings.
SELECT name, version FROM queue_dependencystate
