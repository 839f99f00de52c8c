"""The halfspaces' figures."""
