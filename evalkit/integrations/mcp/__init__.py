"""MCP: an episode is a server, the environment's tools are its tools.

    evalkit mcp scheduling/basic --instance seed-0
    evalkit mcp costbench/basic --http 8765

A client of the Model Context Protocol lists the tools, calls them, and reads the score at the end. Needs the extra
`mcp`.
"""

from evalkit.integrations import missing

try:
    import mcp  # noqa: F401 - only to see whether it is there
except ModuleNotFoundError as absent:
    raise missing("The MCP SDK", "mcp") from absent

from evalkit.integrations.mcp.http import serve_http
from evalkit.integrations.mcp.server import EpisodeServer, serve_stdio

__all__ = ["EpisodeServer", "serve_http", "serve_stdio"]
