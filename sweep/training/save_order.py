"""Which of the saves in a folder is the newest, and which come before it.

Numbers in names decide where names are of one series, for clocks go wrong and copying changes
times; a pointer or a name such as "last" where a framework keeps one; times between what nothing
else compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cmp_to_key
from pathlib import Path

from sweep.training import save_names
from sweep.training.save_names import DOUBTFUL, LAST, LEFT, PREVIOUS, STATE, WEIGHTS
from sweep.training.saves import _DEEPEST, Listing, Save, folder_save, is_flat, look, matching


def find(folder: Path, pattern: str | None = None) -> list[Save]:
    """Return the whole saves in a folder, newest first.

    Weights alone (a best.pt), and what may be no state, are only among them where there is nothing
    else.

    Args:
        pattern: Only what matches this glob counts.
    """
    if pattern is not None:
        listing = matching(folder, pattern)
        found = [s for s in in_order(_finished(listing)) if not _is_unfinished(s, listing)]
    else:
        found = _find(folder, _DEEPEST, is_of_logs=False)
    for less in ((WEIGHTS, DOUBTFUL), (WEIGHTS,)):
        if resumable := [save for save in found if save.name.role not in less]:
            return resumable
    return found


def _find(folder: Path, depth: int, *, is_of_logs: bool) -> list[Save]:
    if is_flat(folder):
        return [save for save in folder_save(folder, folder.stat()) if save.is_whole]
    listing = look(folder, folders_only=is_of_logs)
    lists = [in_order(_finished(listing))]
    series: dict[str, list[Path]] = {}
    for holder in _resumable(listing.holders) if depth else ():
        told = save_names.parse(holder.name, is_folder=True)
        series.setdefault(told.series, []).append(holder)
    for holders in series.values():  # version_0, version_1: the highest is the newest
        holders.sort(key=lambda path: save_names.parse(path.name, is_folder=True).numbers)
        inside = [
            _find(holder, depth - 1, is_of_logs=save_names.is_log_folder(holder.name))
            for holder in reversed(holders)
        ]
        if all(save_names.parse(holder.name).ranks for holder in holders):
            lists.append(_of_all_ranks(inside))
        else:
            lists.append([save for saves in inside for save in saves])
    return [save for save in _merge(lists) if not _is_unfinished(save, listing)]


def _resumable(holders: Sequence[Path]) -> Sequence[Path]:
    """Return the folders that hold what is resumed from, where models lie apart from it."""
    states = [path for path in holders if path.name.lower() in save_names.STATE_HOLDERS]
    return states or holders


def _of_all_ranks(inside: Sequence[Sequence[Save]]) -> list[Save]:
    """Return the first rank's saves, of several that save in a folder each: those that all have."""
    *others, first = inside  # the highest comes first
    found = []
    for save in first:
        same = [[s for s in saves if s.path.name == save.path.name] for saves in others]
        if all(same):
            files = (*save.files, *(file for each in same for file in each[0].files))
            found.append(replace(save, files=files))
    return found


def _is_unfinished(save: Save, listing: Listing) -> bool:
    return any(save_names.is_called(save.path.name, stem) for stem in listing.unfinished)


def _finished(listing: Listing) -> list[Save]:
    """Return the saves that are whole, by themselves, beside the one before, and by pointers."""
    whole = [save for save in listing.saves if save.is_whole]
    every = list(_series(whole).values())
    for series in every:
        # Only the newest can have been cut short: the others were there when it was begun.
        if len(series) > 1 and (
            series[0].misses_what_has(series[1]) or _misses_partner(series, every)
        ):
            whole.remove(series[0])
    return _pointed_at(whole, listing)


def _misses_partner(series: Sequence[Save], every: Iterable[Sequence[Save]]) -> bool:
    """Tell whether each save but the newest has one of another name and the same number.

    model_state_e9 and training_state_e9 of AllenNLP, net_g_5 and net_d_5: together they are one.
    """
    if series[0].content is not None or not series[0].name.numbers:
        return False
    earlier = {save.name.numbers for save in series[1:]}
    return any(
        other is not series
        and other[0].content is None
        and other[0].name.role == series[0].name.role
        and {save.name.numbers for save in other} == earlier
        for other in every
    )


def _pointed_at(saves: list[Save], listing: Listing) -> list[Save]:
    """Leave out what no pointer has named yet, and call the newest what pointers call so."""
    if not listing.pointers:
        saves = [save for save in saves if not save.needs_pointer]
    # What is kept up by itself (ESPnet's checkpoint.pth) is more than what a link calls the latest.
    is_kept_up = any(save.name.role == LAST and save.content is None for save in saves)
    for text in (*(() if is_kept_up else listing.targets), *listing.pointers):
        target = _find_named(saves, text)
        told = target.name if target else save_names.parse(text)
        if not told.numbers:
            limit = None
        elif text.isdecimal():
            limit = [save for save in saves if save.name.numbers[-1:] > told.numbers]
        else:
            limit = [save for save in saves if _is_beyond(save, told)]
        saves = [save for save in saves if save not in (limit or ())]
        if target is not None:
            newest = replace(target, name=replace(target.name, role=LAST))
            saves = [newest if save is target else save for save in saves]
    return saves


def _is_beyond(save: Save, told: save_names.Name) -> bool:
    same = save.name.series == told.series and save.name.role not in (LAST, WEIGHTS)
    return same and _compare_numbers(save.name.numbers, told.numbers) > 0


def _find_named(saves: Iterable[Save], text: str) -> Save | None:
    for save in saves:
        if text in {save.path.name, *(path.name for path in save.files)}:
            return save
    if text.isdecimal():
        for save in saves:
            if save.name.numbers[-1:] == (int(text),):
                return save
    return None


def in_order(saves: Iterable[Save]) -> list[Save]:
    """Return saves of one folder, the newest first, weights alone last."""
    roles = {role: [s for s in saves if s.name.role in role] for role in _CLASSES}
    lasts, states, *others = ([*_merge(_series(roles[r]).values())] for r in _CLASSES)
    if lasts and _is_left_behind(lasts[0], states):
        lasts, states = states, lasts
    return [*lasts, *states, *(save for each in others for save in each)]


_CLASSES = ((LAST, LEFT), (STATE,), (PREVIOUS,), (DOUBTFUL,), (WEIGHTS,))


def _is_left_behind(last: Save, states: Sequence[Save]) -> bool:
    """Tell whether "last" is no longer kept up: two others were saved after it.

    One may be the same state again, or an export. Times count only where numbers agree with them.
    """
    for series in _series(states).values():
        times = [save.saved_ns for save in series]
        if times != sorted(times, reverse=True):
            return False
    return sum(save.saved_ns > last.saved_ns for save in states) > 1


def _series(saves: Iterable[Save]) -> dict[tuple[str, bool], list[Save]]:
    """Return the saves by series, the newest first."""
    found: dict[tuple[str, bool], list[Save]] = {}
    for save in saves:
        found.setdefault((save.name.series, save.content is not None), []).append(save)
    for series in found.values():
        series.sort(key=cmp_to_key(_compare), reverse=True)
    return found


def _compare(a: Save, b: Save) -> int:
    by_number = _compare_numbers(a.name.numbers, b.name.numbers)
    if by_number:
        return by_number
    by_version = a.name.version - b.name.version
    if by_version:
        return by_version
    return _sign(a.saved_ns - b.saved_ns) or (a.path.name > b.path.name) - (
        a.path.name < b.path.name
    )


def _compare_numbers(a: Sequence[int], b: Sequence[int]) -> int:
    """Return which is higher; 0 where one only goes on where the other ends (epoch, batch)."""
    for one, other in zip(a, b, strict=False):
        if one != other:
            return _sign(one - other)
    return 0


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _merge(lists: Iterable[Sequence[Save]]) -> list[Save]:
    """Return lists that are in order as one: of their first ones the latest comes next."""
    waiting = [list(each) for each in lists if each]
    found = []
    while waiting:
        first = max(waiting, key=lambda each: each[0].saved_ns)
        found.append(first.pop(0))
        waiting = [each for each in waiting if each]
    return found
