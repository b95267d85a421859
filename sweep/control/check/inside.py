"""What of a check runs inside the training's own environment: one file, standard library only.

It is copied into the check's folder and started as training would be, by whatever Python the
environment holds (3.8 or newer). Each mode prints one line of JSON behind MARK:

- ``facts``: the interpreter, torch, the GPUs, a matrix product, paths and their rights;
- ``signal``: says READY, and then which signal reached it;
- ``reduce``: the first all-reduce of several ranks, started by the study's launcher.
"""

import datetime
import fcntl
import json
import os
import platform
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

MARK = "SWEEP-FACTS "
READY = "SWEEP-READY"
PRODUCT = 2048  # rows of the square matrices that are multiplied
REDUCED_BYTES = 16 << 20
REPEATS = 5
SIOCGIFADDR = 0x8915  # linux/sockios.h: the IPv4 address of an interface


def say(facts):
    """Print facts for whoever started this."""
    sys.stdout.write("\n" + MARK + json.dumps(facts) + "\n")
    sys.stdout.flush()


def one_line(error):
    """Return an exception as one line."""
    text = " ".join(str(error).split())
    return ("%s: %s" % (type(error).__name__, text))[:400]


def ask_python():
    """Return what runs this."""
    return {
        "version": platform.python_version(),
        "executable": sys.executable,
        "glibc": platform.libc_ver()[1],
    }


def ask_reporter():
    """Return whether training can import the reporter."""
    try:
        import sweep.report
    except ImportError as error:
        return {"error": one_line(error), "pythonpath": os.environ.get("PYTHONPATH", "")}
    return {"file": sweep.report.__file__}


def ask_torch():
    """Return torch's version, or why it cannot be imported."""
    began = time.time()
    try:
        import torch
    except Exception as error:  # a broken installation raises anything
        return {"error": one_line(error), "missing": isinstance(error, ModuleNotFoundError)}
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "import_s": round(time.time() - began, 2),
    }


def ask_smi():
    """Return how many GPUs nvidia-smi lists, or why it cannot say."""
    program = shutil.which("nvidia-smi")
    if not program:
        return {"error": "there is no nvidia-smi"}
    try:
        done = subprocess.run(
            [program, "-L"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": one_line(error)}
    text = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode:
        return {"error": text[:400] or "exit code %d" % done.returncode}
    return {"gpus": [line for line in text.splitlines() if line.startswith("GPU ")]}


def ask_cuda():
    """Return the GPUs that torch sees, and a matrix product on each."""
    import torch

    if not torch.cuda.is_available():
        return {"devices": [], "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}
    devices = []
    for number in range(torch.cuda.device_count()):
        device = {"name": torch.cuda.get_device_name(number)}
        try:
            one = torch.ones(PRODUCT, PRODUCT, device="cuda:%d" % number)
            torch.cuda.synchronize(number)
            began = time.time()
            found = float((one @ one)[0, 0])
            device["product_s"] = round(time.time() - began, 4)
            device["right"] = found == float(PRODUCT)
        except Exception as error:
            device["error"] = one_line(error)
        devices.append(device)
    return {"devices": devices, "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}


def ask_paths(wanted):
    """Return what of each path is there and may be done with it.

    Args:
        wanted: Triples of a path, whether it is to be written to, and its name for people.
    """
    found = []
    for path, writes, name in wanted:
        entry = {"path": path, "writes": writes, "name": name, "exists": os.path.exists(path)}
        entry["reads"] = os.access(path, os.R_OK)
        entry["error"] = ""
        if writes and os.path.isdir(path):
            trial = os.path.join(path, ".sweep-check-%d" % os.getpid())
            try:
                with open(trial, "w") as stream:
                    stream.write("x")
                os.unlink(trial)
            except OSError as error:
                entry["error"] = one_line(error)
        elif writes and not os.access(path, os.W_OK):
            entry["error"] = "no right to write"
        found.append(entry)
    return found


def addresses():
    """Return the IPv4 address of each network interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        for _, name in socket.if_nameindex():
            try:
                packed = struct.pack("256s", name[:15].encode())
                answer = fcntl.ioctl(asker.fileno(), SIOCGIFADDR, packed)
            except OSError:
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def interface_to(host, port):
    """Return the network interface on the way to a host; empty where that cannot be said."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
            asker.connect((host, port))
            own = asker.getsockname()[0]
    except OSError:
        return ""
    return next((name for name, address in addresses().items() if address == own), own)


def run_facts(wanted):
    """Print all that one process can say."""
    facts = {"python": ask_python(), "reporter": ask_reporter(), "torch": ask_torch()}
    facts["paths"] = ask_paths(wanted["paths"])
    if wanted["gpus"]:
        facts["smi"] = ask_smi()
        if "error" not in facts["torch"]:
            facts["cuda"] = ask_cuda()
    say(facts)


def run_signal():
    """Wait for a signal, and say which."""

    def heard(number, _):
        say({"signal": signal.Signals(number).name})
        sys.exit(0)

    signal.signal(signal.SIGTERM, heard)
    signal.signal(signal.SIGUSR1, heard)
    print("\n" + READY, flush=True)
    time.sleep(60)


def run_reduce(wanted):
    """Sum a vector over all ranks; rank 0 prints how fast that was."""
    import torch.distributed

    ranks = torch.distributed
    environ = os.environ
    environ.setdefault("RANK", environ.get("SLURM_PROCID", "0"))
    environ.setdefault("WORLD_SIZE", environ.get("SLURM_NTASKS", "1"))
    environ.setdefault("LOCAL_RANK", environ.get("SLURM_LOCALID", "0"))
    rank, world = int(environ["RANK"]), int(environ["WORLD_SIZE"])
    on_gpus = bool(wanted["gpus"]) and torch.cuda.is_available()
    backend, device = ("nccl", "cuda") if on_gpus else ("gloo", "cpu")
    if on_gpus:
        torch.cuda.set_device(int(environ["LOCAL_RANK"]) % torch.cuda.device_count())
    began = time.time()
    ranks.init_process_group(backend, timeout=datetime.timedelta(seconds=wanted["timeout_s"]))
    vector = torch.ones(REDUCED_BYTES // 4, device=device)
    ranks.all_reduce(vector)
    right = bool((vector == world).all())
    first_s = time.time() - began
    began = time.time()
    for _ in range(REPEATS):
        ranks.all_reduce(vector)
    if on_gpus:
        torch.cuda.synchronize()
    each_s = (time.time() - began) / REPEATS
    host, port = environ.get("MASTER_ADDR", ""), int(environ.get("MASTER_PORT", "0"))
    named = environ.get("GLOO_SOCKET_IFNAME") if backend == "gloo" else None
    named = named or environ.get("NCCL_SOCKET_IFNAME", "").lstrip("=")
    own = {
        "host": socket.gethostname(),
        "torch": torch.__version__,
        "interface": named or interface_to(host, port or 1),
    }
    everybody = [None] * world
    ranks.all_gather_object(everybody, own)
    if rank == 0:
        # The bytes that each rank sends and receives in a ring, as nccl-tests counts them.
        bytes_each = 2 * (world - 1) / world * REDUCED_BYTES
        say(
            {
                "backend": backend,
                "world": world,
                "right": right,
                "first_s": round(first_s, 3),
                "bytes_per_s": bytes_each / each_s,
                "ranks": everybody,
            }
        )
    ranks.destroy_process_group()


def main(arguments):
    """Run one mode; the second argument is the file that says what is wanted."""
    with open(arguments[1]) as stream:
        wanted = json.load(stream)
    if arguments[0] == "signal":
        run_signal()
    elif arguments[0] == "reduce":
        run_reduce(wanted)
    else:
        run_facts(wanted)


if __name__ == "__main__":
    main(sys.argv[1:])
