"""Frozen records whose classes cost next to nothing to define.

The runtime is started with every sandbox, and `dataclasses` alone takes as long to import as the
rest of it (8 to 16 ms, measured), plus 0.3 ms for each class.  Type checkers see a dataclass here;
at run time a record is a plain class that reads its own annotations.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, dataclass_transform

    JSON = Any  # a JSON value of any shape; named for annotations only
else:

    def dataclass_transform(**_):  # noqa: ANN003, ANN202
        """Return the class unchanged; only type checkers need the mark."""
        return lambda cls: cls


__all__ = ["RECORDS", "Record"]

RECORDS: dict[str, type[Record]] = {}
"""Every record class by its name; the codec resolves nested annotations here."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record:
    """A frozen, keyword-only value with the fields its class annotates.

    Annotations are kept as the text they were written as: the codec reads that text, so only the
    types it documents may be used.  Two records are equal when class and all fields are.
    """

    FIELDS: ClassVar[dict[str, str]] = {}
    DEFAULTS: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = {
            name: kind
            for name, kind in cls.__annotations__.items()
            if not kind.startswith("ClassVar")
        }
        cls.FIELDS = {**cls.FIELDS, **own}
        cls.DEFAULTS = {name: getattr(cls, name) for name in cls.FIELDS if hasattr(cls, name)}
        RECORDS[cls.__name__] = cls

    if not TYPE_CHECKING:

        def __init__(self, **values) -> None:  # noqa: ANN003
            fields = self.FIELDS
            for name in values:
                if name not in fields:
                    raise TypeError(f"{type(self).__name__} has no field {name!r}")
            mine = self.__dict__
            mine.update(self.DEFAULTS)
            mine.update(values)
            if len(mine) != len(fields):
                missing = [name for name in fields if name not in mine]
                raise TypeError(f"{type(self).__name__} lacks {', '.join(missing)}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), repr(self)))

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.FIELDS)
        return f"{type(self).__name__}({inner})"
