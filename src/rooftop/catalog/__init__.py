"""Data sheets with a source for every number."""
