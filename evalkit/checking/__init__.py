"""What `evalkit.testing` checks, by what it looks at: the record, its instances, its episodes."""
