"""Robust training: natural, adversarial, TRADES, WRM and verified losses."""
