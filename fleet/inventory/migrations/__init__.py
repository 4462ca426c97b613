"""Migrations: one linear history of `versions/NNNN_what.py`, revision `NNNN`, each after the one before it."""
