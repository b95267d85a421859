"""A stand-in for the driver's libnvidia-ml.so.1, to be loaded by the real nvidia-ml-py.

It behaves as NVML does: counters of millijoules that go up for ever, names and UUIDs by index, and
NVML_ERROR_NOT_SUPPORTED from cards that do not count. $NVML_STUB has a word for each GPU: its power
in milliwatts, 0 for a card that does not count, after a colon its name, "+mig" for MIG mode.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.needs import look_for_compiler, require

_SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, UNINITIALIZED = 1 };
static int ready = 0;
static char words[16][64];
static unsigned int count(void) {
  char text[1024];
  unsigned int n = 0;
  strncpy(text, getenv("NVML_STUB") ? getenv("NVML_STUB") : "", sizeof text - 1);
  text[sizeof text - 1] = 0;
  for (char *word = strtok(text, ","); word && n < 16; word = strtok(NULL, ","))
    strncpy(words[n++], word, 63);
  return n;
}
int nvmlInitWithFlags(unsigned int flags) { ready = 1; return SUCCESS; }
int nvmlInit_v2(void) { ready = 1; return SUCCESS; }
int nvmlShutdown(void) { ready = 0; return SUCCESS; }
const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : "Error"; }
int nvmlDeviceGetCount_v2(unsigned int *n) {
  if (!ready) return UNINITIALIZED;
  *n = count();
  return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
  if (!ready) return UNINITIALIZED;
  if (index >= count()) return INVALID;
  *device = (void *)(size_t)(index + 1);
  return SUCCESS;
}
int nvmlDeviceGetName(void *device, char *name, unsigned int length) {
  count();
  char *colon = strchr(words[(size_t)device - 1], ':');
  snprintf(name, length, "%s", colon ? colon + 1 : "A100");
  return SUCCESS;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
  snprintf(uuid, length, "GPU-%08zx-stub", (size_t)device - 1);
  return SUCCESS;
}
int nvmlDeviceGetMigMode(void *device, unsigned int *current, unsigned int *pending) {
  count();
  *current = *pending = strstr(words[(size_t)device - 1], "+mig") != NULL;
  return *current ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
  struct timespec now;
  if (!ready) return UNINITIALIZED;
  count();
  double milliwatts = atof(words[(size_t)device - 1]);
  if (milliwatts == 0.0) return NOT_SUPPORTED;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *millijoules = (unsigned long long)(milliwatts * (now.tv_sec + now.tv_nsec / 1e9));
  return SUCCESS;
}
"""


def build(folder: Path) -> Path:
    """Return a folder for LD_LIBRARY_PATH with the library; skips loudly without a C compiler."""
    require("compiler")
    compiler = look_for_compiler().what
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nvml.c").write_text(_SOURCE)
    subprocess.run(
        [
            compiler,
            "-shared",
            "-fPIC",
            "-w",
            "-Wl,-soname,libnvidia-ml.so.1",
            "-o",
            str(folder / "libnvidia-ml.so.1"),
            str(folder / "nvml.c"),
        ],
        check=True,
    )
    return folder
