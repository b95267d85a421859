"""The oldest versions of other packages that sweep works with, as setup.cfg declares them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from sweep.core.errors import SweepError

# pip holds to them when sweep is installed; what is installed later may not.
OLDEST = {
    "click": "8.1",
    "jinja2": "3.1",
    "optuna": "4.3",
    "pandas": "2.0",
    "psycopg2-binary": "2.9.9",
    "rich": "13",
    "ruamel.yaml": "0.18",
    "scipy": "1.10",
    "sqlalchemy": "2.0",
}


def refuse_too_old() -> None:
    """Refuse to work with packages that are too old: tasks would fail, one after the other.

    One that is not found by its name passes: it may have been installed under another one, as
    psycopg2 is.

    Raises:
        SweepError: Some are too old.
    """
    found = {name: _installed(name) for name in OLDEST}
    old = [
        f"{name} {known} ({OLDEST[name]} or newer is needed)"
        for name, known in found.items()
        if known and _numbers(known) < _numbers(OLDEST[name])
    ]
    if old:
        wanted = " ".join(f"'{name}>={OLDEST[name]}'" for name in OLDEST if found[name])
        raise SweepError(
            f"Too old for sweep: {', '.join(old)}.", f"Install newer ones: pip install -U {wanted}"
        )


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _numbers(text: str) -> tuple[int, ...]:
    """Return the release of a version as numbers: (4, 3, 0) of 4.3.0rc1."""
    found = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
        if digits != part:
            break
    while found and found[-1] == 0:
        found.pop()
    return tuple(found)
