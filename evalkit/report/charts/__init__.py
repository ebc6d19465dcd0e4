"""One episode drawn: per environment the series that make behaviour visible, and a figure of each."""
