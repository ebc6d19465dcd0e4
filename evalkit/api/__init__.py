"""The Python interface. Its public names are listed in `evalkit.__all__` and imported from `evalkit`."""
