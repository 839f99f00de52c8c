"""Robust and private halfspaces."""
