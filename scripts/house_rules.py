"""The house rules that no off-the-shelf linter knows; `make lint` runs them, stdlib only.

- A module has at most 500 lines: what is longer does more than one thing.
- No file or folder is named after its being left over (utils, helpers, common, misc, core).
- Only the packages that talk to Spark import pyspark. import-linter proves the same for the pure packages,
  indirect imports included; this also covers modules that stand outside of any package.
- Nothing imports a pickle: what a checkpoint holds is Arrow and JSON.

Prints one line per violation, as `path:line: what to do`, and exits with 1 if there is any.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "anabranch"
MODULE_TREES = (PACKAGE, ROOT / "tests", ROOT / "scripts")

MAX_LINES = 500
LEFTOVER_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "core"}
SPARK_PACKAGES = {"api", "runtime", "bench", "cli"}
PICKLES = {"pickle", "_pickle", "cloudpickle", "dill", "shelve"}


def imported_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every absolute import with its line, as a dotted name; `from a import b` gives `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def too_long(path: Path, text: str) -> Iterator[str]:
    """A module over the limit."""
    lines = len(text.splitlines())
    if lines > MAX_LINES:
        yield f"{MAX_LINES + 1}: {lines} lines, at most {MAX_LINES}; split it by what it does"


def leftover_name(path: Path, text: str) -> Iterator[str]:
    """A file or folder whose name says nothing about what is inside."""
    for part in path.relative_to(ROOT).with_suffix("").parts:
        if part.strip("_").removeprefix("test_") in LEFTOVER_NAMES:
            yield f"1: {part!r} says nothing about the content; name it after what it holds"


def forbidden_imports(path: Path, text: str) -> Iterator[str]:
    """An import of pyspark outside the packages that talk to Spark, or of a pickle anywhere."""
    if PACKAGE not in path.parents:
        return
    talks_to_spark = path.relative_to(PACKAGE).parts[0] in SPARK_PACKAGES
    for line, name in imported_names(ast.parse(text, filename=str(path))):
        parts = name.split(".")
        if parts[0] == "pyspark" and not talks_to_spark:
            yield f"{line}: imports {name}; only {', '.join(sorted(SPARK_PACKAGES))} may talk to Spark"
        if PICKLES.intersection(parts):
            yield f"{line}: imports {name}; state and messages are Arrow and JSON, never pickles"


RULES = (too_long, leftover_name, forbidden_imports)


def violations() -> Iterator[str]:
    """One line for each place that breaks a rule."""
    for tree in MODULE_TREES:
        for path in sorted(tree.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for rule in RULES:
                yield from (f"{path.relative_to(ROOT)}:{found}" for found in rule(path, text))


def main() -> int:
    """Print the violations; the exit status."""
    found = list(violations())
    print("\n".join(found) if found else "House rules kept.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
