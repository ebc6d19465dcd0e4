"""evalkit: asynchronous batch evaluation of language-model agents on economic environments with known optima."""

__version__ = "0.1.0"
