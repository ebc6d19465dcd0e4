"""`python -m tests.report.vega_bundle`: makes anew the script that draws figures in pages, of the installed vl-convert.

A test compares the two, so it fails when another vl-convert is locked, until this was called.
"""

import gzip

import vl_convert

from evalkit.report.figures.draw import BUNDLE, VEGALITE


def built() -> str:
    """The script: nothing in it ends the element that it stands in."""
    script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGALITE))
    return script.replace("</script", "<\\/script")


if __name__ == "__main__":
    BUNDLE.write_bytes(gzip.compress(built().encode(), 9, mtime=0))
