"""Cron schedules: expressions, the register of schedules, and the fires that make their jobs."""
