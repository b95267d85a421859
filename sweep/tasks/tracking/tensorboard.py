"""TensorBoard: one folder of events a trial, below ``runs/<name>/tensorboard/``; with what its
HParams page shows: parameters, objectives, how a trial ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2, summary_v2
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from sweep.core.files import remove_tree
from sweep.core.outcomes import COMPLETE, FINAL_STATES, PRUNED
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.core.trial import Report
from sweep.tasks.tracking.tracker import Described


class TensorboardTracker:
    """Writes event files.

    A later attempt takes away all events from its first step on, of whatever metric; what still
    counts of them is written anew.
    """

    def __init__(self, study: Study, folder: StudyFolder) -> None:
        self._study = study
        self._make = EventFileWriter
        self._folder = folder
        self._writers: dict[tuple[int, int], Any] = {}
        self._firsts: dict[tuple[int, int], int] = {}  # of later attempts, once they have reported
        self._anew: set[int] = set()  # trials whose folders are written anew

    def begin(self, described: Described) -> None:
        if described.again and described.trial not in self._anew:
            remove_tree(self._place(described))
            self._anew.add(described.trial)
        writer = self._writer(described)
        table = ["| name | value |", "|---|---|"]
        for name, value in {**described.params, **described.system}.items():
            table.append(f"| {_cell(name)} | {_cell(value)} |")
        writer.add_event(_text_event("sweep", "\n".join(table)))
        values = {name: _plain(value) for name, value in described.params.items()}
        # In each trial's folder: the page takes the first that it finds, and they say the same.
        metrics = [summary_v2.Metric(one.metric) for one in self._study.objectives]
        shown = [summary_v2.HParam(name) for name in values]
        for made in (
            summary_v2.hparams_config_pb(shown, metrics),
            summary_v2.hparams_pb(values, trial_id=f"{described.trial:05d}"),
        ):
            writer.add_event(Event(wall_time=time.time(), summary=made))
        writer.flush()

    def cut(self, described: Described, first: int) -> None:
        self._firsts[described.trial, described.attempt] = first
        start = SessionLog(status=SessionLog.START)
        event = Event(wall_time=time.time(), step=first, session_log=start)
        self._writer(described).add_event(event)

    def log(self, described: Described, reports: Sequence[Report]) -> None:
        writer = self._writer(described)
        for report in reports:
            values = [
                Summary.Value(tag=name, simple_value=value)
                for name, value in report.metrics.items()
            ]
            writer.add_event(
                Event(wall_time=report.time_s, step=report.step, summary=Summary(value=values))
            )
        writer.flush()

    def restore(self, described: Described, reports: Sequence[Report]) -> None:
        first = self._firsts.get((described.trial, described.attempt))
        if first is not None:  # else nothing was taken away
            gone = [report for report in reports if report.step >= first]
            self.log(described, gone)

    def end(self, described: Described, state: str) -> None:
        writer = self._writer(described)
        writer.add_event(_text_event("sweep/state", state))
        if state in FINAL_STATES:  # the page takes the first end that it finds
            writer.add_event(_session_end(state))
        writer.close()
        del self._writers[described.trial, described.attempt]

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def trouble(self) -> str:
        return ""  # a call that fails raises

    def _writer(self, described: Described) -> Any:
        key = (described.trial, described.attempt)
        if key not in self._writers:
            folder = str(self._place(described))
            self._writers[key] = self._make(folder, filename_suffix=f".{described.attempt}")
        return self._writers[key]

    def _place(self, described: Described) -> Path:
        return self._folder.tensorboard / f"{described.trial:05d}"


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _plain(value: Any) -> Any:
    """Return a value as the HParams page takes it."""
    return value if isinstance(value, bool | int | float | str) else str(value)


def _session_end(state: str) -> Any:
    """Return the event that says on the HParams page how a trial ended."""
    is_well = state in (COMPLETE, PRUNED)
    status = api_pb2.STATUS_SUCCESS if is_well else api_pb2.STATUS_FAILURE
    end = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=time.time())
    data = plugin_data_pb2.HParamsPluginData(session_end_info=end)
    value = Summary.Value(
        tag=metadata.SESSION_END_INFO_TAG,
        metadata=metadata.create_summary_metadata(data),
        tensor=metadata.NULL_TENSOR,
    )
    return Event(wall_time=time.time(), summary=Summary(value=[value]))


def _text_event(tag: str, text: str) -> Any:
    tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()])
    value = Summary.Value(
        tag=tag, tensor=tensor, metadata=create_summary_metadata(display_name=tag, description="")
    )
    return Event(wall_time=time.time(), summary=Summary(value=[value]))
