"""Certificates by one layer of noise."""
