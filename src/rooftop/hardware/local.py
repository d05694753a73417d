"""This machine: processor, usable cores, memory, GPUs, system, and its load."""

import platform
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from rooftop import __version__
from rooftop.domain.host import Host
from rooftop.domain.machine import Gpu, Machine
from rooftop.domain.trial import Surroundings
from rooftop.errors import ProbeFailed

_GPUS = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")


class LocalHost:
    """The machine that rooftop runs on."""

    def read(self, path: str) -> str | None:
        """The text of a file, None where it cannot be read."""
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def run(self, command: Sequence[str], timeout_s: float = 10.0) -> str | None:
        """Standard output of a command, None where it fails, is not there or takes too long."""
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=True,
                                  encoding="utf-8", errors="replace")
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout


def this_machine(host: Host | None = None) -> Machine:
    """What this process may use of the machine: its affinity mask and the limits of its control groups count.

    The name is made of the parts (`AMD EPYC, 2 cores`), so that equal machines have equal names and no host name
    leaves the house.  Raises ProbeFailed where /proc does not tell cores and memory.
    """
    host = host or LocalHost()
    cpu, cores, gpus = cpu_model(host), usable_cores(host), nvidia_gpus(host)
    parts = [cpu or "unknown processor", f"{cores} core{'s' if cores > 1 else ''}"]
    names = [gpu.name for gpu in gpus]
    for name in dict.fromkeys(names):
        parts.append(f"{names.count(name)} x {name}")
    return Machine(name=", ".join(parts), cpu=cpu, cores=cores, memory_bytes=usable_memory(host), gpus=gpus,
                   system=system(host))


def surroundings(machine: Machine, host: Host | None = None) -> Surroundings:
    """The conditions right now: versions, and the load average over the last minute (0 where it is not told)."""
    load = ((host or LocalHost()).read("/proc/loadavg") or "0").split()[0]
    return Surroundings(machine=machine, rooftop_version=__version__, python_version=platform.python_version(),
                        load_before=float(load))


def cpu_model(host: Host) -> str:
    """The processor's name, "" where nothing tells it (the kernel of an ARM server does not; then `lscpu` does)."""
    found = re.search(r"^(?:model name|cpu model|cpu)[ \t]*:[ \t]*(\S.*)$", host.read("/proc/cpuinfo") or "", re.M)
    found = found or re.search(r"^Model name:[ \t]*([^-\s].*)$", host.run(("lscpu",)) or "", re.M)
    return " ".join(found[1].split()) if found else ""


def usable_cores(host: Host) -> int:
    """Logical processors that this process may use at the same time, at least 1.

    The affinity mask, cut by the processor quota of the control groups (whole processors).  Raises ProbeFailed where
    /proc tells no number of processors.
    """
    allowed = re.search(r"^Cpus_allowed_list:\s*([\d,-]+)", host.read("/proc/self/status") or "", re.M)
    listed = re.findall(r"^processor\s*:", host.read("/proc/cpuinfo") or "", re.M)
    cores = _count(allowed[1]) if allowed else len(listed)
    if not cores:
        raise ProbeFailed("the number of processors is not known", where="/proc/self/status, /proc/cpuinfo",
                          remedy="rooftop needs Linux with /proc mounted")
    for folder in _groups(host, "cpu"):
        both = host.read(f"{folder}/cpu.max") or " ".join(
            host.read(f"{folder}/cpu.cfs_{part}_us") or "" for part in ("quota", "period"))
        quota = re.fullmatch(r"\s*(\d+)\s+([1-9]\d*)\s*", both)
        if quota:
            cores = min(cores, max(1, int(quota[1]) // int(quota[2])))
    return cores


def usable_memory(host: Host) -> int:
    """Bytes of memory: installed, or the limit of the control groups where that is less.  Raises ProbeFailed."""
    total = re.search(r"^MemTotal:\s*(\d+) kB", host.read("/proc/meminfo") or "", re.M)
    if not total:
        raise ProbeFailed("the size of the memory is not known", where="/proc/meminfo",
                          remedy="rooftop needs Linux with /proc mounted")
    memory = int(total[1]) * 1024
    for folder in _groups(host, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = (host.read(f"{folder}/{name}") or "").strip()
            if limit.isdigit():
                memory = min(memory, int(limit))
    return memory


def nvidia_gpus(host: Host) -> tuple[Gpu, ...]:
    """GPUs as `nvidia-smi` lists them; () where it is not there or does not reach its driver."""
    rows = (line.rpartition(",") for line in (host.run(_GPUS) or "").splitlines() if "," in line)
    return tuple(Gpu(name.strip(), _mebibytes(memory)) for name, _, memory in rows)


def system(host: Host) -> str:
    """Distribution and kernel, for instance `Debian GNU/Linux 12 (bookworm), Linux 6.1.0`; "" where not told."""
    name = re.search(r'^PRETTY_NAME="?([^"\n]*)', host.read("/etc/os-release") or "", re.M)
    kernel = (host.read("/proc/sys/kernel/osrelease") or "").strip()
    return ", ".join(part for part in (name[1] if name else "", f"Linux {kernel}" if kernel else "") if part)


def _mebibytes(text: str) -> int | None:
    found = re.fullmatch(r"\s*(\d+) MiB\s*", text)
    return int(found[1]) << 20 if found else None


def _count(ranges: str) -> int:
    """How many numbers `0-3,8` names."""
    ends = (part.partition("-") for part in ranges.split(","))
    return sum(int(high or low) - int(low) + 1 for low, _, high in ends)


def _groups(host: Host, controller: str) -> Iterator[str]:
    """Folders of the control groups that hold this process, from its own up to the root; version 2 and version 1.

    Inside a container the path may be the outer one, which is not there; the container's limits are then at the root.
    """
    for line in (host.read("/proc/self/cgroup") or "").splitlines():
        names, _, path = line.partition(":")[2].partition(":")
        if names and controller not in names.split(","):
            continue
        root = f"/sys/fs/cgroup/{controller}" if names else "/sys/fs/cgroup"
        inner = PurePosixPath("/" + path.lstrip("/"))
        for group in (inner, *inner.parents):
            yield root + str(group).rstrip("/")
