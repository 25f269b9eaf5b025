"""Numbered and named constants that look like enums and import nothing.

The standard `enum` takes as long to import as an interpreter takes to start half way (5 to 8 ms,
measured), which every start of a sandbox would pay.  Type checkers see real enums.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enum import Enum as Name
    from enum import IntEnum as Number
else:

    class _Members(type):
        """Turns the values in a class body into its members."""

        def __new__(mcs, name, bases, body):  # noqa: ANN001, ANN204
            values = {key: value for key, value in body.items() if not key.startswith("_")}
            if not bases or bases == (int,):
                return super().__new__(mcs, name, bases, body)
            rest = {key: value for key, value in body.items() if key not in values}
            cls = super().__new__(mcs, name, bases, rest)
            cls._by_name = {}
            for key, value in values.items():
                member = int.__new__(cls, value) if issubclass(cls, int) else object.__new__(cls)
                member.name, member.value = key, value
                cls._by_name[key] = member
                type.__setattr__(cls, key, member)
            cls._by_value = {member.value: member for member in cls._by_name.values()}
            return cls

        def __call__(cls, value):  # noqa: ANN001, ANN204
            try:
                return cls._by_value[value]
            except KeyError:
                raise ValueError(f"{value!r} is not a {cls.__name__}") from None

        def __iter__(cls):  # noqa: ANN204
            return iter(cls._by_name.values())

        def __len__(cls) -> int:
            return len(cls._by_name)

        def __getitem__(cls, name):  # noqa: ANN001, ANN204
            return cls._by_name[name]

        def __setattr__(cls, name, value) -> None:  # noqa: ANN001
            if name in cls.__dict__.get("_by_name", ()):
                raise AttributeError(f"{cls.__name__}.{name} is a constant")
            super().__setattr__(name, value)

    class Name(metaclass=_Members):
        """Base of classes whose members are what they are called."""

        def __repr__(self) -> str:
            return f"<{type(self).__name__}.{self.name}>"

        def __reduce__(self):  # noqa: ANN204
            return type(self), (self.value,)

    class Number(int, metaclass=_Members):
        """Base of classes whose members are integers with names."""

        __str__ = int.__repr__

        def __repr__(self) -> str:
            return f"<{type(self).__name__}.{self.name}: {int(self)}>"

        def __reduce__(self):  # noqa: ANN204
            return type(self), (self.value,)


__all__ = ["Name", "Number"]
