"""The gateway: a loopback address at which any client of a model API asks through an agent's seat."""

from evalkit.doors.gateway.server import Gateway, gateway

__all__ = ["Gateway", "gateway"]
