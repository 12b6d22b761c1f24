"""Scenarios that come along: TOML files."""
