"""The taskset and the harness for verifiers, which looks for the id `evalkit-verifiers` among top-level modules."""

from evalkit.integrations.verifiers import EvalkitHarness, EvalkitTaskset

__all__ = ["EvalkitHarness", "EvalkitTaskset"]
