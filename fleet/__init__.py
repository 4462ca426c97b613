"""fleet keeps bare-metal accelerator nodes on a known-good set of driver, firmware, OS and toolkit."""

__version__ = "0.1.0"
