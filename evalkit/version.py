"""evalkit's version: what logs, manifests and requests name. A module of its own, so that they need not the package."""

__version__ = "0.2.0"
