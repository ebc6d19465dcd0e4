"""The Python interface. What of it is public stands in `evalkit.__all__`, and is imported from `evalkit`."""
