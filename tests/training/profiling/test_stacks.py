"""Which frames mean loading, which an exchange: dumps of py-spy as it writes them."""

from __future__ import annotations

import json

import pytest

from sweep.training.profiling.stacks import COMMUNICATION, DATA, WORK, read

SITE = "/usr/lib/python3.11/site-packages/"


def dump(*frames: tuple[str, str], active: bool = False) -> str:
    thread = {"pid": 7, "os_thread_id": 7, "thread_name": "MainThread", "active": active}
    other = {**thread, "os_thread_id": 8, "frames": [{"name": "_feed", "filename": "queues.py"}]}
    found = [{"name": name, "filename": file, "line": 1} for file, name in frames]
    return json.dumps([other, {**thread, "frames": found}])


@pytest.mark.parametrize(
    ("frames", "active", "ranks", "kind"),
    [
        ([("selectors.py", "select"), (SITE + "torch/utils/data/dataloader.py", "_try_get_data"),
          ("train.py", "main")], False, 1, DATA),
        ([("aug.py", "__getitem__"), (SITE + "torch/utils/data/_utils/fetch.py", "fetch"),
          (SITE + "torch/utils/data/dataloader.py", "_SingleProcessDataLoaderIter._next_data"),
          ("train.py", "main")], True, 1, DATA),
        ([(SITE + "torch/utils/data/dataloader.py", "__init__"), ("train.py", "main")], True, 1,
         WORK),
        ([(SITE + "torch/distributed/distributed_c10d.py", "all_reduce"), ("train.py", "main")],
         False, 2, COMMUNICATION),
        ([(SITE + "torch/autograd/graph.py", "_engine_run_backward"), ("train.py", "main")],
         False, 2, COMMUNICATION),
        ([(SITE + "torch/autograd/graph.py", "_engine_run_backward"), ("train.py", "main")],
         True, 2, WORK),
        ([(SITE + "torch/autograd/graph.py", "_engine_run_backward"), ("train.py", "main")],
         False, 1, WORK),
        ([("/home/me/dataloader.py", "__next__"), ("train.py", "main")], True, 1, WORK),
    ],
)  # fmt: skip
def test_a_stack(frames: list[tuple[str, str]], active: bool, ranks: int, kind: str) -> None:
    (stack,) = read(dump(*frames, active=active))
    assert (stack.pid, stack.kind(ranks), stack.is_loader) == (7, kind, False)


def test_in_a_container_with_numbers_of_its_own_the_first_thread_goes_by_its_name() -> None:
    inside = dump((SITE + "torch/utils/data/dataloader.py", "__next__")).replace(
        '"pid": 7', '"pid": 15425'
    )
    inside = inside.replace('"os_thread_id": 8, "thread_name": "MainThread"',
                            '"os_thread_id": 8, "thread_name": "QueueFeeder"')  # fmt: skip
    (stack,) = read(inside)
    assert (stack.pid, stack.kind(1)) == (15425, DATA)


def test_a_process_that_loads_for_another() -> None:
    (stack,) = read(
        dump(("aug.py", "f"), (SITE + "torch/utils/data/_utils/worker.py", "_worker_loop"))
    )
    assert stack.is_loader


@pytest.mark.parametrize("text", ["", "{}", "Error: no such process"])
def test_no_dump(text: str) -> None:
    with pytest.raises(ValueError):
        read(text)
