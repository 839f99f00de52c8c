"""Audits of a run."""
