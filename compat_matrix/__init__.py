"""The compatibility matrix: tables of what exists and what fits, and the solver over them.

    matrix = load(settings.matrix_path, settings.vendor_path)
    answer = solve(matrix, parse_request(text, "request.yaml"))     # Solution | Conflict
    answer = solve(matrix, request_of(facts, Policy(), {"driver": "580.*"}))
    matrix.model("nvidia", "NVIDIA H100 80GB HBM3")                 # canonical name or None
    road(matrix, request, target, start)                            # stages or None
    converge(matrix, requests)                                      # few stacks for a whole fleet
    why_not(matrix, request, "driver", "570.211.01")                 # Explanation

The form of the tables is told in compat_matrix/README.md.
"""

from __future__ import annotations

from compat_matrix.check import check
from compat_matrix.classes import node_classes
from compat_matrix.converge import Target, converge
from compat_matrix.document import Problem
from compat_matrix.explain import Explanation, why_not
from compat_matrix.load import BadMatrix, load
from compat_matrix.request import parse_request, request_of
from compat_matrix.solve import road, solve
from compat_matrix.table import Matrix

__all__ = [
    "BadMatrix", "Explanation", "Matrix", "Problem", "Target", "check", "converge", "load", "node_classes",
    "parse_request", "request_of", "road", "solve", "why_not",
]  # fmt: skip
