"""What others' tools read: chat transcripts, data sets, sheets, Inspect's logs; see `docs/exports.md`."""
