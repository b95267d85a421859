"""torch's profiler over an unchanged script: ``python -m sweep.integrations.torch_profile TRACE``.

What follows TRACE is the script and its arguments, or -m and a module, as Python takes them. The
steps of its optimizers are counted: the first five pass, the next twenty are profiled. The trace is
for chrome://tracing or ui.perfetto.dev; beside it lies a table of the operations that took longest.
Needs torch 2.1 or newer; a script that makes no steps of an optimizer is not profiled.
"""

import atexit
import os
import runpy
import sys

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile

PASSED, PROFILED = 5, 20


class StepProfiler:
    """Profiles some steps of the optimizers of this process."""

    def __init__(self, path):
        self.path = path
        self.steps = 0
        self.profiler = None

    def step(self, *_):
        self.steps += 1
        if self.steps == PASSED:
            self.start()
        elif self.steps == PASSED + PROFILED:
            self.stop()

    def start(self):
        kinds = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(ProfilerActivity.CUDA)
        self.profiler = profile(activities=kinds)
        self.profiler.__enter__()

    def stop(self):
        profiler, self.profiler = self.profiler, None
        if profiler is None:
            return
        profiler.__exit__(None, None, None)
        folder = os.path.dirname(self.path)
        if folder:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        profiler.export_chrome_trace(self.path)
        averages = profiler.key_averages()
        on_gpu = any("cuda" in str(getattr(e, "device_type", "")).lower() for e in averages)
        order = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
        with open(os.path.splitext(self.path)[0] + ".txt", "w", encoding="utf-8") as stream:
            stream.write(averages.table(sort_by=order, row_limit=40))


def run(arguments):
    """Run a script as Python would, some of its steps profiled."""
    path, command = arguments[0], arguments[1:]
    if os.environ.get("RANK", "0") == "0":  # of several ranks the first
        profiler = StepProfiler(path)
        register_optimizer_step_post_hook(profiler.step)
        atexit.register(profiler.stop)
    if command[0] == "-m":
        sys.argv = command[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python -m sweep.integrations.torch_profile TRACE SCRIPT.py [ARGUMENT ...]")
    run(sys.argv[1:])
