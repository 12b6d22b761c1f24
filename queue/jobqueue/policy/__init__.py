"""Pure scheduling arithmetic: standard library only, so that the same code is simulated, tested and run."""
