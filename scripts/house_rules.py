"""The house rules that no off-the-shelf linter knows; `make lint` runs them, stdlib only.

- A module has at most 500 lines: what is longer does more than one thing.
- No file or folder is named after its being left over (utils, helpers, common, misc, core).
- Only the packages that talk to Spark import pyspark. import-linter proves the same for the pure packages,
  indirect imports included; this also covers modules that stand outside of any package.
- Nothing imports a pickle: what a checkpoint holds is Arrow and JSON.
- What documents name exists: files, packages and modules in backticks, and where links lead, headings included.

Prints one line per violation, as `path:line: what to do`, and exits with 1 if there is any.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "anabranch"
MODULE_TREES = (PACKAGE, ROOT / "tests", ROOT / "scripts")
DOCUMENTS = ("*.md", "docs/**/*.md", "benchmarks/**/*.md", "tests/**/*.md")

MAX_LINES = 500
LEFTOVER_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "core"}
SPARK_PACKAGES = {"api", "runtime", "bench", "cli"}
PICKLES = {"pickle", "_pickle", "cloudpickle", "dill", "shelve"}

QUOTED = re.compile(r"`([^`]+)`")
PATH = re.compile(r"[\w.-]+(/[\w.-]+)+/?|\w+\.py")
DOTTED = re.compile(r"anabranch(\.[A-Za-z_]\w*)+(?<!\.json)")
# Parts of a name that stand for others: N, NNN-title, EPOCH-STEP.json.
PLACEHOLDER = re.compile(r"[A-Z]+\b")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


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


def unknown_names(path: Path, text: str) -> Iterator[str]:
    """A file or module that a document names in backticks and that does not exist.

    A path counts if it begins in a folder of the project or of the package; without that, what it names is a user's.
    """
    for line, name in _matches(QUOTED, _without_code(text)):
        if PATH.fullmatch(name) and not _path_exists(name):
            yield f"{line}: names {name}, which does not exist; say where it is now"
        if DOTTED.fullmatch(name) and not _module_exists(name.split(".")[1:]):
            yield f"{line}: names {name}, which does not exist; say what it is called now"


def broken_links(path: Path, text: str) -> Iterator[str]:
    """A link of a document to a file, or to a heading of one, that is not there."""
    for line, target in _matches(LINK, _without_code(text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        file, _, anchor = target.partition("#")
        linked = path.parent / file if file else path
        if not linked.exists():
            yield f"{line}: links {target}, but there is no such file"
        elif anchor and linked.suffix == ".md" and anchor not in _anchors(linked):
            yield f"{line}: links {target}, but {linked.name} has no such heading"


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    return ((text.count("\n", 0, match.start()) + 1, match[1]) for match in pattern.finditer(text))


def _without_code(text: str) -> str:
    """The text with its blocks of code made empty, all lines kept."""
    return FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)


def _path_exists(name: str) -> bool:
    first, *rest = parts = name.rstrip("/").split("/")
    if any(PLACEHOLDER.match(part) for part in rest):
        return True
    if not rest:
        return any(path.name == name for tree in MODULE_TREES for path in tree.rglob("*.py"))
    homes = [home for home in (ROOT, PACKAGE) if (home / first).is_dir()]
    return not homes or any(_is_there(home.joinpath(*parts)) for home in homes)


def _is_there(path: Path) -> bool:
    return path.exists() or path.with_name(f"{path.name}.py").is_file()


def _module_exists(parts: list[str]) -> bool:
    """Whether the package has this module, or this name in a module."""
    *folders, last = parts
    home = PACKAGE.joinpath(*folders)
    if _is_there(home / last):
        return True
    module = home / "__init__.py" if home.is_dir() else home.with_name(f"{home.name}.py")
    return module.is_file() and re.search(rf"\b{last}\b", module.read_text(encoding="utf-8")) is not None


@cache
def _anchors(path: Path) -> frozenset[str]:
    """The headings of a document as links write them."""
    headings = HEADING.findall(_without_code(path.read_text(encoding="utf-8")))
    return frozenset(re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings)


RULES = (too_long, leftover_name, forbidden_imports)
DOCUMENT_RULES = (unknown_names, broken_links)


def violations() -> Iterator[str]:
    """One line for each place that breaks a rule."""
    modules = [path for tree in MODULE_TREES for path in sorted(tree.rglob("*.py"))]
    documents = [path for pattern in DOCUMENTS for path in sorted(ROOT.glob(pattern))]
    for paths, rules in ((modules, RULES), (documents, DOCUMENT_RULES)):
        for path in paths:
            text = path.read_text(encoding="utf-8")
            for rule in rules:
                yield from (f"{path.relative_to(ROOT)}:{found}" for found in rule(path, text))


def main() -> int:
    """Print the violations; the exit status."""
    found = list(violations())
    print("\n".join(found) if found else "House rules kept.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
