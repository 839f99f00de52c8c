"""Membership inference against robust models."""
