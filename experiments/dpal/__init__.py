"""DPAL's figures."""
