"""The compatibility matrix: tables of what exists and what fits, and the solver over them."""
