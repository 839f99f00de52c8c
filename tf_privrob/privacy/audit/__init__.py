"""Audits of privacy: lower bounds with a confidence."""
