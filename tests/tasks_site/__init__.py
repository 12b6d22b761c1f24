"""A small Django site whose tasks were written for any backend; only TASKS names ours."""
