"""The app of the handler that side-by-side measurements run."""
