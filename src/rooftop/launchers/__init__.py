"""Plug-ins that start and end programs, one place to run per file."""
