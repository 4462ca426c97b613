"""Drift: what nodes said against what they should be. Pure; a finding's fingerprint is stable between audits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Baseline:
    """A named stack: the best known configuration of one vendor or model; empty = of any."""

    name: str
    stack: Mapping[str, str]
    vendor: str = ""
    model: str = ""
