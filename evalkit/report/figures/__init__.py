"""Figures of a run: `figure.py` says what one is, `theme.py` how it looks, `draw.py` makes files of it."""
