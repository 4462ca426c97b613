"""The command line: one module for each noun; each parses, calls and prints, nothing more."""
