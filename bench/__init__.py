"""What evalkit promises in figures, measured: `make bench`, and scripts to run alone. `calibrations/` has
those by which constants are set."""
