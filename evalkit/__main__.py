"""`python -m evalkit`."""

from evalkit.cli.main import entry

if __name__ == "__main__":
    entry()
