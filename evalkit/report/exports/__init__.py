"""What others' tools read: chat transcripts, sheets, Inspect's logs, archives; see `docs/exports.md`."""
