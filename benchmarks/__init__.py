"""Speed, measured: run ``make bench``."""
