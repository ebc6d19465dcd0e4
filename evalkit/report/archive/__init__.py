"""One file with everything that a run's numbers follow from, and the numbers; see `docs/archives.md`."""
