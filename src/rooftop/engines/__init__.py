"""Plug-ins of pure functions: what each serving engine is told and what it says."""
