"""The formats that replies come in, for tests of how one is read: clouds' forms of them are read alike."""

from evalkit.wire.dialect import Dialect
from evalkit.wire.table import DIALECTS

FORMATS: dict[str, Dialect] = {
    name: dialect for name, dialect in DIALECTS.items() if not name.endswith(("_bedrock", "_vertex"))
}
