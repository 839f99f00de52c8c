"""Audits of certificates: attacks inside the radii, and their power."""
