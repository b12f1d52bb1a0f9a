"""`python -m anabranch`: the command line, where the script `anabranch` is not on the path."""

from __future__ import annotations

from anabranch.cli.main import app

if __name__ == "__main__":
    app(prog_name="anabranch")
