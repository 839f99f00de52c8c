"""Exact margins of linear models."""
