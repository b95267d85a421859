"""Which configurations keep to the relations of ``where``, and points by chance that do.

The one place for rejection: a configuration is drawn again until it keeps to them, and where it
never does, a point that was found beforehand is taken.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sweep.core.errors import InputError
from sweep.core.relations import breaches, keeps_to, read_relations
from sweep.core.space import same_value, to_optuna
from sweep.core.study import Study
from sweep.search import priors
from sweep.search.draws import place_values, random_point, unit_draw

SURVEY = 10_000  # points by which a launch sees how much of the space is left
MOST_LOST = 5  # choices that are said
ENOUGH = 50  # valid points for each choice, by which one that none has is never left
BELIEVED = 1_000  # points from the priors by which a launch sees whether they contradict it
REDRAWS = 10_000  # of one configuration
FEW = 0.01  # of the space; below it a launch warns
MOST_DRAWS = 1_000_000  # of one design: about 15 s
_FAR = 10**9  # between the numbers of draws for the same trial
_OF_SURVEY = 10**15  # its draws are no trial's

_surveys: list[tuple[Any, Survey]] = []  # the last one, with what it depends on


class Where:
    """The relations of a study, as they are asked of stored values."""

    def __init__(self, study: Study) -> None:
        self._relations = read_relations(study.where)
        self._space, self._fixed = study.space, study.fixed

    def __bool__(self) -> bool:
        return bool(self._relations)

    def keeps(self, stored: Mapping[str, Any]) -> bool:
        """Tell whether a configuration keeps to them, given as Optuna stores it."""
        return not self._relations or keeps_to(self._relations, self._values(stored))

    def breaches(self, stored: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the clauses that a configuration breaks, each with the reason."""
        return breaches(self._relations, self._values(stored)) if self._relations else []

    def describe(self, stored: Mapping[str, Any]) -> str:
        """Return in words what a configuration breaks; "" where nothing."""
        return "; ".join(f"{clause}: {why}" for clause, why in self.breaches(stored))

    def _values(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._fixed, **self._space.from_optuna(stored)}


@dataclass(frozen=True)
class Survey:
    """What many points by chance say of a study's relations.

    Attributes:
        drawn: So many points.
        points: Those that keep to all of them, as Optuna stores them.
        broken: For each clause how many points break it.
        examples: For each clause why one of them does.
    """

    drawn: int
    points: list[dict[str, Any]]
    broken: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The part of the space that keeps to the relations."""
        return len(self.points) / self.drawn

    @property
    def share_at_least(self) -> float:
        """The same, and not 0 where no point was found."""
        return max(len(self.points), 1) / self.drawn

    def refuse_none(self) -> None:
        """Raises: InputError: No point keeps to the relations."""
        if not self.points:
            raise InputError(
                f"where: none of {self.drawn} points by chance keeps to the relations: "
                f"{self.worst()}.",
                "Correct them, or give the parameters ranges in which they can hold.",
            )

    def worst(self) -> str:
        """Return in words which clauses are broken most."""
        most = sorted(self.broken.items(), key=lambda item: -item[1])[:3]
        return "; ".join(
            f"{clause} is broken by {count} (for example, {self.examples[clause]})"
            for clause, count in most
        )


def survey(study: Study, count: int = SURVEY) -> Survey:
    """Return what points by chance say of a study's relations; the same for the same study."""
    asked = (study.space, study.fixed, study.where, study.seed, count)
    if not _surveys or _surveys[0][0] != asked:
        _surveys[:] = [(asked, _survey(study, count))]
    return _surveys[0][1]


def _survey(study: Study, count: int) -> Survey:
    where = Where(study)
    points: list[dict[str, Any]] = []
    broken, examples = Counter[str](), dict[str, str]()
    for number in range(count):
        point = random_point(study, _OF_SURVEY + number)
        found = where.breaches(point)
        if not found:
            points.append(point)
        for clause, why in found:
            broken[clause] += 1
            examples.setdefault(clause, why)
    return Survey(count, points, broken, examples)


def check_where(study: Study) -> str:
    """Return a warning where few points keep to a study's relations; "" where enough do.

    A grid is not drawn from: its points are counted.

    Raises:
        InputError: None of many points does.
    """
    if not study.where or study.sampler.type == "grid":
        return ""
    found = survey(study)
    found.refuse_none()
    few = ""
    if found.share < FEW:
        few = (
            f"where leaves {len(found.points)} of {found.drawn} points by chance: proposals take "
            f"longer, and points may come again. Narrow the ranges. {found.worst()}"
        )
    return " ".join(filter(None, (few, _lost_choices(study, found), _check_priors(study))))


def _lost_choices(study: Study, found: Survey) -> str:
    """Return a warning about choices that no valid point of many has; "" where each has some."""
    lost = []
    for parameter in study.space:
        having = [point[parameter.name] for point in found.points if parameter.name in point]
        if parameter.type != "categorical" or len(having) < ENOUGH * len(parameter.choices):
            continue
        lost += [
            f"{parameter.name} = {json.dumps(choice, ensure_ascii=False)}"
            for choice in parameter.choices
            if not any(same_value(to_optuna(choice), value) for value in set(having))
        ]
    if not lost:
        return ""
    more = f" and {len(lost) - MOST_LOST} more" if len(lost) > MOST_LOST else ""
    said = ", ".join(lost[:MOST_LOST]) + more
    return f"where never leaves {said}: remove what is never tried, or correct it."


def _check_priors(study: Study) -> str:
    """Return a warning where the priors and the relations contradict each other; "" if not."""
    if not priors.has_priors(study.space):
        return ""
    why = _broken_by_priors(study, centred=False)
    if why:
        return (
            f"where: none of {BELIEVED} points from the priors keeps to it, so the start is drawn "
            f"by chance: {why}. Correct the one or the other."
        )
    why = _broken_by_priors(study, centred=True)
    return f"where: the first trial is not at the priors' centers: {why}." if why else ""


def _broken_by_priors(study: Study, *, centred: bool) -> str:
    """Return what points of the start break, in words; "" where one keeps to the relations."""
    where, why = Where(study), ""
    for number in range(BELIEVED):
        draw = _unit(study.seed, _OF_SURVEY + number)
        row = priors.start_row(study.space, draw, centred=centred)
        why = where.describe(row)
        if not why:
            return ""
    return why


def describe_share(study: Study) -> str:
    """Return in words how much of the space a study's relations leave."""
    share = survey(study).share
    return f"{share:.2%}" if share < FEW else f"{share:.0%}"


def valid_point(
    study: Study, number: int, known: Mapping[str, Any] | None = None, most: int = REDRAWS
) -> dict[str, Any] | None:
    """Return a random point that keeps to the relations; None where ``most`` draws found none.

    Without relations it is ``random_point``.

    Args:
        known: Stored values that it has in any case.
    """
    point, _ = _draw(study, Where(study), number, known or {}, most)
    return point


def any_valid_point(study: Study, number: int) -> dict[str, Any]:
    """Return a random point that keeps to the relations; after many draws one that is known.

    Raises:
        InputError: There is none, as a launch would have said.
    """
    return next(valid_points(study, [number]))


def valid_points(study: Study, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Yield a random point for each number, as ``any_valid_point``; of bounded time in all."""
    where, left = Where(study), MOST_DRAWS
    for number in numbers:
        point, draws = _draw(study, where, number, {}, min(REDRAWS, left))
        left -= draws
        yield _known(study, number) if point is None else point


def _known(study: Study, number: int) -> dict[str, Any]:
    found = survey(study)
    found.refuse_none()
    return dict(found.points[number % len(found.points)])


def _draw(
    study: Study, where: Where, number: int, known: Mapping[str, Any], most: int
) -> tuple[dict[str, Any] | None, int]:
    """Return a point and how many were drawn again for it."""
    if all(name in known for name in study.space.names()):
        most = 0  # nothing is left to chance
    for again in range(most + 1):
        place = number + again * _FAR
        point = place_values(study.space, _unit(study.seed, place), known)
        if where.keeps(point):
            return point, again
    return None, most


def _unit(seed: int, number: int) -> Callable[[str], float]:
    return lambda name: unit_draw(seed, number, name)
