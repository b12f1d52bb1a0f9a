"""Tables of a configuration file, read key by key, with errors that name the key and what to write instead.

Unknown keys are refused first, with the nearest known key as a suggestion, because a misspelt key is also a missing
one. The place of a key is written as in TOML: `streams.orders.lateness`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from anabranch.errors import AnabranchError, ConfigError, did_you_mean
from anabranch.observe.numbers import parse_bytes

V = TypeVar("V")


class Table:
    """One table of a file: its content, and its place."""

    def __init__(self, file: str, where: str, content: Any) -> None:
        """`where` is the dotted name of the table, empty for the whole file."""
        self._file = file
        self._where = where
        if not isinstance(content, Mapping):
            raise self.error(None, f"must be a table of keys and values, not {_kind(content)}")
        self._content = {str(key): value for key, value in content.items()}

    def error(self, key: str | None, problem: str) -> ConfigError:
        """An error about one key, or about the table itself."""
        name = ".".join(part for part in (self._where, key) if part)
        return ConfigError(f"{self._file}: {name + ' ' if name else ''}{problem}")

    def only(self, *known: str) -> Table:
        """The table itself, if it has no other keys than these."""
        for key in self._content:
            if key not in known:
                raise self.error(key, f"is not a key that exists here; {did_you_mean(key, known)}")
        return self

    def has(self, key: str) -> bool:
        """Whether the table has the key, with a value."""
        return self._content.get(key) is not None

    def is_text(self, key: str) -> bool:
        """Whether the value of the key is a text."""
        return isinstance(self._content.get(key), str)

    def text(self, key: str) -> str | None:
        """A text, or None if the key is absent."""
        value: str | None = self._get(key, str, "a text in quotes")
        return value

    def required(self, key: str, purpose: str) -> str:
        """A text that must not be absent; the error mentions its `purpose`."""
        value = self.text(key)
        if value is None or not value.strip():
            raise self.error(key, f"is missing: {purpose}")
        return value

    def size(self, key: str) -> str | int | None:
        """A number of bytes, as a number or as a text with a unit, or None."""
        value: str | int | None = self._get(key, (str, int), "a size such as '200m'")
        return None if value is None else self.check(key, value, parse_bytes)

    def number(self, key: str) -> int | None:
        """A whole number, or None."""
        value: int | None = self._get(key, int, "a whole number")
        return value

    def flag(self, key: str) -> bool | None:
        """true or false, or None."""
        value: bool | None = self._get(key, bool, "true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; a single text will do."""
        value = self._get(key, (str, list), "a list of texts")
        items = [value] if isinstance(value, str) else (value or [])
        if not all(isinstance(item, str) for item in items):
            raise self.error(key, "must be a list of texts")
        return tuple(items)

    def numbers(self, key: str) -> tuple[float, ...] | None:
        """A list of numbers, or None."""
        value: list[Any] | None = self._get(key, list, "a list of numbers")
        if value is not None and not all(isinstance(n, int | float) and not isinstance(n, bool) for n in value):
            raise self.error(key, "must be a list of numbers")
        return None if value is None else tuple(value)

    def values(self, *known: str) -> dict[str, Any]:
        """All values by key, if there are no other keys than these."""
        return dict(self.only(*known)._content)

    def options(self, key: str) -> dict[str, str]:
        """A table of options as Spark takes them, texts; nested tables become dotted names."""
        if not self.has(key):
            return {}
        table = Table(self._file, self._name(key), self._content[key])
        return table._flat()

    def table(self, key: str) -> Table | None:
        """A table inside this one, or None."""
        return Table(self._file, self._name(key), self._content[key]) if self.has(key) else None

    def tables(self) -> list[tuple[str, Table]]:
        """All values of this table, each a table, by name."""
        return [(name, Table(self._file, self._name(name), value)) for name, value in self._content.items()]

    def check(self, key: str, value: V, test: Callable[[V], object]) -> V:
        """`value`, if `test` raises no error; its error is raised again under the name of the key."""
        try:
            test(value)
        except AnabranchError as error:
            raise self.error(key, f"is wrong: {error}") from None
        return value

    def _name(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def _get(self, key: str, kind: type | tuple[type, ...], expected: str) -> Any:
        if not self.has(key):
            return None
        value = self._content[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(key, f"must be {expected}, not {_kind(value)}")
        return value

    def _flat(self) -> dict[str, str]:
        options: dict[str, str] = {}
        for key, value in self._content.items():
            if isinstance(value, Mapping):
                inner = Table(self._file, self._name(key), value)._flat()
                options |= {f"{key}.{name}": text for name, text in inner.items()}
            elif isinstance(value, bool):
                options[key] = str(value).lower()
            elif isinstance(value, str | int | float):
                options[key] = str(value)
            else:
                raise self.error(key, f"must be a text, a number, true or false, not {_kind(value)}")
        return options


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    names = {dict: "a table", list: "a list", str: f"the text {value!r}", int: f"the number {value}"}
    return names.get(type(value), repr(value))
