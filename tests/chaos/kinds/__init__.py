"""A Django app that holds the handlers of the chaos runs."""
