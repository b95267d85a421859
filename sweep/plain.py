"""Data classes that cost nothing to define.

The standard decorator writes and compiles six methods for each class: about a millisecond of CPU
that every task of an array pays for each of the hundred classes it imports, and the module that
holds it takes six more. These have the same methods, shared. To type checkers the two are one, and
``dataclasses.fields``, ``replace``, ``asdict`` and ``is_dataclass`` work on both.

Making an object takes some microseconds longer: what is made by the hundred thousand uses the
standard one.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would be an import
if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
    from typing import Any

__all__ = ["dataclass", "field", "field_kinds", "replace"]

_KNOWN = "__plain_fields__"


class _Made:
    """A default that is made anew for each object."""

    def __init__(self, factory: Any) -> None:
        self.factory = factory


class _Standard:
    """What the standard module asks of a data class, made when it asks."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: Any) -> Any:
        import dataclasses

        known: dict[str, Any] = getattr(owner, _KNOWN)
        twin: dict[str, Any] = {"__doc__": owner.__doc__, "__module__": owner.__module__}
        twin["__annotations__"] = {name: kind for name, (kind, _) in known.items()}
        for name, (_, default) in known.items():
            if isinstance(default, _Made):
                twin[name] = dataclasses.field(default_factory=default.factory)
            elif default is not _Made:
                twin[name] = dataclasses.field(default=default)
        frozen = owner.__setattr__ is _refuse
        made: Any = dataclasses.dataclass(frozen=frozen)(type(owner.__name__, (), twin))
        for asked in ("__dataclass_fields__", "__dataclass_params__"):
            setattr(owner, asked, getattr(made, asked))
        return getattr(made, self.name)


if not TYPE_CHECKING:

    def field(*, default_factory):
        """Return a field's default that is made anew for each object."""
        return _Made(default_factory)

    def replace(one, /, **changes):
        """Return an object of ours with some fields changed."""
        return type(one)(**{**dict(zip(getattr(one, _KNOWN), _values(one))), **changes})

    def dataclass(cls=None, /, *, frozen=False, order=False):
        """Make a class of annotated fields, as ``dataclasses.dataclass`` does."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, order=order)
        known = {}
        for base in reversed(cls.__mro__[1:]):
            known.update(base.__dict__.get(_KNOWN, {}))
        for name, kind in cls.__annotations__.items():
            default = cls.__dict__.get(name, _Made)
            known[name] = (kind, default)
            if isinstance(default, _Made):
                delattr(cls, name)
        setattr(cls, _KNOWN, known)
        cls.__match_args__ = tuple(known)
        cls.__init__ = _initialiser(cls.__name__, known, getattr(cls, "__post_init__", None))
        cls.__dataclass_fields__ = _Standard("__dataclass_fields__")
        cls.__dataclass_params__ = _Standard("__dataclass_params__")
        for name, method in (("__repr__", _repr), ("__eq__", _equals)):
            if name not in cls.__dict__:
                setattr(cls, name, method)
        if order:
            cls.__lt__ = _precedes
        if frozen:
            cls.__setattr__, cls.__delattr__ = _refuse, _refuse
            if cls.__dict__.get("__hash__") is None:
                cls.__hash__ = _hash
        elif "__hash__" not in cls.__dict__:
            cls.__hash__ = None
        return cls


def field_kinds(cls: Any) -> dict[str, str] | None:
    """Return the annotations of a class of ours by field, as they are written; None of others."""
    known = getattr(cls, _KNOWN, None)
    return None if known is None else {name: kind for name, (kind, _) in known.items()}


def _initialiser(owner: str, known: dict[str, Any], then: Any) -> Any:
    names = tuple(known)
    fixed = {
        name: default
        for name, (_, default) in known.items()
        if default is not _Made and not isinstance(default, _Made)
    }
    made = [
        (name, default.factory)
        for name, (_, default) in known.items()
        if isinstance(default, _Made)
    ]
    places = {name: place for place, name in enumerate(names)}

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = dict(zip(names, args))
        if len(args) > len(names):
            raise TypeError(f"{owner} has {len(names)} fields ({len(args)} were given)")
        if kwargs:
            for name in kwargs:
                if name not in places:
                    raise TypeError(f"{owner} has no field {name!r}")
                if name in given:
                    raise TypeError(f"{owner}: {name!r} was given twice")
            given.update(kwargs)
        values = self.__dict__
        if len(given) < len(names):
            values.update(fixed)
            for name, factory in made:
                if name not in given:
                    values[name] = factory()
        values.update(given)
        if len(values) < len(names):
            missing = ", ".join(name for name in names if name not in values)
            raise TypeError(f"{owner} lacks {missing}")
        if then is not None:
            then(self)

    return __init__


def _values(one: Any) -> tuple[Any, ...]:
    return tuple([getattr(one, name) for name in getattr(one, _KNOWN)])


def _repr(self: Any) -> str:
    inner = ", ".join(f"{name}={getattr(self, name)!r}" for name in getattr(self, _KNOWN))
    return f"{type(self).__qualname__}({inner})"


def _equals(self: Any, other: object) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return _values(self) == _values(other)


def _precedes(self: Any, other: object) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return _values(self) < _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _refuse(self: Any, name: str, *_: Any) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change {name!r} of a {type(self).__name__}")
