"""Playbooks and roles as data of the distribution; `ROOT` is the folder they lie in."""

from pathlib import Path

ROOT = Path(__file__).parent
