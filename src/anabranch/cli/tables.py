"""Reading a table of a configuration file key by key, with errors that name the key and what to write instead.

A `Table` remembers which keys were asked for; `finish` refuses the others, suggesting the nearest key that exists.
Where a key stands is written as in TOML: `streams.orders.lateness`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from anabranch.errors import AnabranchError, ConfigError, did_you_mean

V = TypeVar("V")


class Table:
    """One table of a file: what was read, and where it stands."""

    def __init__(self, file: str, where: str, content: Any) -> None:
        """`where` is the dotted name of the table, empty for the whole file."""
        self._file = file
        self._where = where
        self._asked: list[str] = []
        if not isinstance(content, Mapping):
            raise self.error(None, f"must be a table of keys and values, not {_kind(content)}")
        self._content = {str(key): value for key, value in content.items()}

    def error(self, key: str | None, problem: str) -> ConfigError:
        """An error about one key, or about the table itself."""
        name = ".".join(part for part in (self._where, key) if part)
        return ConfigError(f"{self._file}: {name + ' ' if name else ''}{problem}")

    def has(self, key: str) -> bool:
        """Whether the key is there; asking makes it a known one."""
        self._asked.append(key)
        return self._content.get(key) is not None

    def text(self, key: str) -> str | None:
        """A text, or None if the key is absent."""
        return self._get(key, str, "a text in quotes")

    def required(self, key: str, purpose: str) -> str:
        """A text that has to be there; `purpose` is told if it is not."""
        value = self.text(key)
        if value is None or not value.strip():
            self.finish(also_known=_REST)
            raise self.error(key, f"is missing: {purpose}")
        return value

    def number(self, key: str) -> int | None:
        """A whole number, or None."""
        return self._get(key, int, "a whole number")

    def flag(self, key: str) -> bool | None:
        """true or false, or None."""
        return self._get(key, bool, "true or false")

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; a single text will do."""
        value = self._get(key, (str, list), "a list of texts")
        items = [value] if isinstance(value, str) else (value or [])
        if not all(isinstance(item, str) for item in items):
            raise self.error(key, "must be a list of texts")
        return tuple(items)

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
        self._asked.extend(self._content)
        return [(name, Table(self._file, self._name(name), value)) for name, value in self._content.items()]

    def check(self, key: str, value: V, test: Callable[[V], object]) -> V:
        """`value`, if `test` does not object; its objection is put under the name of the key."""
        try:
            test(value)
        except AnabranchError as error:
            raise self.error(key, f"is wrong: {error}") from None
        return value

    def finish(self, also_known: tuple[str, ...] = ()) -> None:
        """Refuse the keys that nobody asked for."""
        known = {*self._asked, *also_known}
        for key in self._content:
            if key not in known:
                raise self.error(key, f"is not a key that exists here; {did_you_mean(key, known)}")

    def _name(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def _get(self, key: str, kind: Any, wanted: str) -> Any:
        if not self.has(key):
            return None
        value = self._content[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(key, f"must be {wanted}, not {_kind(value)}")
        return value

    def _flat(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for key, value in self._content.items():
            if isinstance(value, Mapping):
                inner = Table(self._file, self._name(key), value)._flat()
                found |= {f"{key}.{name}": text for name, text in inner.items()}
            elif isinstance(value, bool):
                found[key] = str(value).lower()
            elif isinstance(value, str | int | float):
                found[key] = str(value)
            else:
                raise self.error(key, f"must be a text, a number, true or false, not {_kind(value)}")
        return found


# Before a missing key is reported, a misspelt one is: these are asked for later, so they are no misspellings.
_REST = tuple(
    """query checkpoint streams sink trigger processors groups memory quarantine late_rows spark
    format path schema time lateness options partition_by available_now processing_time""".split()
)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    names = {dict: "a table", list: "a list", str: f"the text {value!r}", int: f"the number {value}"}
    return names.get(type(value), repr(value))
