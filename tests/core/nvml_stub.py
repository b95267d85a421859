"""A stand-in for the driver's libnvidia-ml.so.1, to be loaded by the real nvidia-ml-py.

It behaves as NVML does: counters of millijoules that go up for ever, names and UUIDs by index, and
NVML_ERROR_NOT_SUPPORTED from cards that do not count. $NVML_STUB has a word for each GPU: its power
in milliwatts, 0 for a card that does not count, after a colon its name, "+mig" for MIG mode.

With $NVML_STUB_MODEL, a folder, the cards are those of tests/packed_gpu.py instead: what 0.json
says of the first one, and what the trainings that live on it wrote to the folder 0. $NVML_STUB_UUID
begins their UUIDs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.needs import look_for_compiler, require

_SOURCE = r"""
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };
typedef struct { unsigned int pid; unsigned long long bytes; unsigned int gpu, compute; } process;
static int ready = 0;
static char words[16][64];
static const char *folder(void) { return getenv("NVML_STUB_MODEL"); }
/* A handle is the number of a card from 1 on, and that of a slice above it. */
static int card_of(void *device) { return (int)((size_t)device & 255) - 1; }
static int slice_of(void *device) { return (int)((size_t)device >> 8) - 1; }
/* The number behind a key of a flat JSON file; what is said where there is none. */
static double number(const char *path, const char *key, double without) {
  char text[4096], quoted[64], *at;
  FILE *file = fopen(path, "r");
  if (!file) return without;
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  at = strstr(text, quoted);
  return at ? atof(at + strlen(quoted)) : without;
}
static double model(int card, const char *key) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%d.json", folder(), card);
  return number(path, key, 0);
}
/* The trainings that live on a card, or on a slice of it, and their bytes. */
static int living(void *device, process *found, int most) {
  char path[1024];
  int n = 0;
  struct dirent *entry;
  snprintf(path, sizeof path, "%s/%d", folder(), card_of(device));
  DIR *opened = opendir(path);
  if (!opened) return 0;
  while ((entry = readdir(opened)) && n < most) {
    unsigned int pid = (unsigned int)atoi(entry->d_name);
    if (!pid || strchr(entry->d_name, '.') || (kill((int)pid, 0) && errno == ESRCH)) continue;
    snprintf(path, sizeof path, "%s/%d/%s", folder(), card_of(device), entry->d_name);
    if (slice_of(device) >= 0 && (int)number(path, "slice", -1) != slice_of(device)) continue;
    found[n].pid = pid;
    found[n].gpu = found[n].compute = ~0u;
    found[n++].bytes = (unsigned long long)number(path, "bytes", 0);
  }
  closedir(opened);
  return n;
}
static unsigned int count(void) {
  char text[1024], path[1024];
  unsigned int n = 0;
  if (folder()) {
    for (;; n++) {
      snprintf(path, sizeof path, "%s/%u.json", folder(), n);
      if (number(path, "total", -1) < 0) return n;
    }
  }
  strncpy(text, getenv("NVML_STUB") ? getenv("NVML_STUB") : "", sizeof text - 1);
  text[sizeof text - 1] = 0;
  for (char *word = strtok(text, ","); word && n < 16; word = strtok(NULL, ","))
    strncpy(words[n++], word, 63);
  return n;
}
static int reached(void *device) {
  if (!ready) return UNINITIALIZED;
  return folder() && model(card_of(device), "lost") ? GPU_IS_LOST : SUCCESS;
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
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  unsigned int card, slice;
  if (!ready) return UNINITIALIZED;
  if (sscanf(uuid, "MIG-%8x-%u", &card, &slice) != 2 || card >= count()) return NOT_FOUND;
  if (!folder() || slice >= model((int)card, "slices")) return NOT_FOUND;
  *device = (void *)(size_t)((card + 1) | (size_t)(slice + 1) << 8);
  return SUCCESS;
}
int nvmlDeviceGetName(void *device, char *name, unsigned int length) {
  count();
  char *colon = folder() ? 0 : strchr(words[card_of(device)], ':');
  snprintf(name, length, "%s", folder() ? "NVIDIA H200" : colon ? colon + 1 : "A100");
  return SUCCESS;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
  const char *own = getenv("NVML_STUB_UUID");
  if (own) snprintf(uuid, length, "GPU-%s%d", own, card_of(device));
  else snprintf(uuid, length, "GPU-%08x-stub", card_of(device));
  return SUCCESS;
}
int nvmlDeviceGetMigMode(void *device, unsigned int *current, unsigned int *pending) {
  count();
  *current = *pending = folder() ? model(card_of(device), "slices") > 0
                                 : strstr(words[card_of(device)], "+mig") != NULL;
  return *current ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetComputeMode(void *device, unsigned int *mode) {
  int said = reached(device);
  if (said || !folder()) return said ? said : NOT_SUPPORTED;
  *mode = (unsigned int)model(card_of(device), "mode");
  return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
  process found[256];
  int said = reached(device);
  if (said || !folder()) return said ? said : NOT_SUPPORTED;
  double slices = model(card_of(device), "slices");
  double total = model(card_of(device), "total") / (slices > 0 ? slices : 1);
  double used = slice_of(device) > 0 ? 0 : model(card_of(device), "neighbour");
  for (int n = living(device, found, 256); n > 0; n--) used += (double)found[n - 1].bytes;
  memory[0] = (unsigned long long)total;
  memory[1] = (unsigned long long)(total > used ? total - used : 0);
  memory[2] = (unsigned long long)used;
  return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned int *rates) {
  process found[256];
  int said = reached(device);
  if (said || !folder() || slice_of(device) >= 0) return said ? said : NOT_SUPPORTED;
  double busy = model(card_of(device), "busy") * living(device, found, 256);
  rates[0] = (unsigned int)(busy > 100 ? 100 : busy);
  double traffic = model(card_of(device), "traffic") * living(device, found, 256);
  rates[1] = (unsigned int)(traffic > 100 ? 100 : traffic);
  return SUCCESS;
}
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned int *milliwatts) {
  *milliwatts = folder() ? (unsigned int)model(card_of(device), "limit_milliwatts") : 0;
  return reached(device) ? reached(device) : *milliwatts ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts) {
  *milliwatts = (unsigned int)model(card_of(device), "milliwatts");
  return reached(device);
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *n, process *into) {
  process found[257];
  int said = reached(device), there = 0;
  if (said || !folder()) return said ? said : NOT_SUPPORTED;
  double hidden = model(card_of(device), "hidden");
  if (hidden == 1) { *n = 0; return SUCCESS; }
  there = living(device, found, 256);
  if (model(card_of(device), "neighbour") > 0 && slice_of(device) <= 0) {
    found[there].pid = (unsigned int)model(card_of(device), "neighbour_pid");
    found[there].gpu = found[there].compute = ~0u;
    found[there++].bytes = (unsigned long long)model(card_of(device), "neighbour");
  }
  if (!there) { *n = 0; return SUCCESS; }
  if (!into || *n < (unsigned int)there) { *n = (unsigned int)there; return INSUFFICIENT_SIZE; }
  for (int i = 0; i < there; i++) {
    into[i] = found[i];
    if (hidden == 2) into[i].pid += 100000000;  /* the host's numbers */
  }
  *n = (unsigned int)there;
  return SUCCESS;
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, unsigned int *n, process *into) {
  *n = 0;
  return reached(device);
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
  struct timespec now;
  int said = reached(device);
  if (said) return said;
  count();
  double milliwatts = folder() ? slice_of(device) >= 0 ? 0 : model(card_of(device), "milliwatts")
                               : atof(words[card_of(device)]);
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
