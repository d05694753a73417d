import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rooftop import __version__
from rooftop.domain.host import Host
from rooftop.domain.machine import Gpu
from rooftop.errors import ProbeFailed
from rooftop.hardware import local


@dataclass
class Recorded:
    """Another machine, as its files and the output of its commands were."""

    files: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def run(self, command: Sequence[str], timeout_s: float = 10.0) -> str | None:
        return self.outputs.get(command[0])


X86 = "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R)  Platinum 8480+\n\n"
ARM = "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n\n"
POWER = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.0MHz\n\n"
MEMORY = "MemTotal:       16384000 kB\nMemFree:         1000 kB\n"


def server(files: dict[str, str] | None = None) -> Recorded:
    """Eight processors, 16 GB, with other text in some of its files."""
    status = "Name:\tx\nCpus_allowed_list:\t0-7\n"
    own = {"/proc/cpuinfo": X86 * 8, "/proc/meminfo": MEMORY, "/proc/self/status": status}
    return Recorded(own | (files or {}))


def test_a_server_with_gpus() -> None:
    host = server({"/etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.2 LTS"\n',
                   "/proc/sys/kernel/osrelease": "6.8.0-60\n"})
    host.outputs["nvidia-smi"] = "NVIDIA H200, 143771 MiB\n" * 8
    machine = local.this_machine(host)
    assert machine.name == "Intel(R) Xeon(R) Platinum 8480+, 8 cores, 8 x NVIDIA H200"
    assert machine.gpus == (Gpu("NVIDIA H200", 143771 << 20),) * 8
    assert (machine.cores, machine.memory_bytes) == (8, 16384000 * 1024)
    assert machine.system == "Ubuntu 24.04.2 LTS, Linux 6.8.0-60"


@pytest.mark.parametrize(("cpuinfo", "lscpu", "model"), [
    (X86, "", "Intel(R) Xeon(R) Platinum 8480+"),
    (ARM, "Architecture:  aarch64\nVendor ID:     ARM\nModel name:    Neoverse-V2\nModel:         0\n", "Neoverse-V2"),
    (ARM, "Model name:    -\n", ""),
    (ARM, "", ""),
    (POWER, "", "POWER9, altivec supported"),
    ("", "", ""),
])
def test_the_processor_is_named_or_unknown(cpuinfo: str, lscpu: str, model: str) -> None:
    host = Recorded({"/proc/cpuinfo": cpuinfo}, {"lscpu": lscpu} if lscpu else {})
    assert local.cpu_model(host) == model


def test_a_machine_that_does_not_say_its_processor() -> None:
    host = server({"/proc/cpuinfo": ARM, "/proc/self/status": "Cpus_allowed_list:\t3\n"})
    machine = local.this_machine(host)
    assert (machine.name, machine.cpu, machine.system) == ("unknown processor, 1 core", "", "")


@pytest.mark.parametrize(("allowed", "cores"), [("0-7", 8), ("2", 1), ("0,2,4-5", 4), ("0-1,64-65", 4)])
def test_the_affinity_mask_counts(allowed: str, cores: int) -> None:
    assert local.usable_cores(server({"/proc/self/status": f"Cpus_allowed_list:\t{allowed}\n"})) == cores


def test_without_a_mask_all_listed_processors_count() -> None:
    assert local.usable_cores(server({"/proc/self/status": ""})) == 8


V2 = "0::/user.slice/job.scope\n"
V1 = "9:name=systemd:/\n4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n0::/\n"
OUTER = "/sys/fs/cgroup/user.slice"


@pytest.mark.parametrize(("cgroup", "files", "cores"), [
    (V2, {}, 8),
    (V2, {f"{OUTER}/job.scope/cpu.max": "max 100000\n"}, 8),
    (V2, {f"{OUTER}/job.scope/cpu.max": "250000 100000\n"}, 2),
    (V2, {f"{OUTER}/job.scope/cpu.max": "50000 100000\n"}, 1),
    (V2, {f"{OUTER}/job.scope/cpu.max": "1600000 100000\n"}, 8),
    (V2, {f"{OUTER}/job.scope/cpu.max": "max 100000\n", f"{OUTER}/cpu.max": "400000 100000\n"}, 4),
    (V2, {"/sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3),
    (V2, {"/sys/fs/cgroup/cpu.max": "broken\n"}, 8),
    (V1, {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 2),
    (V1, {"/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us": "-1\n",
          "/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us": "100000\n"}, 8),
    (V1, {"/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us": "600000\n",
          "/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us": "100000\n"}, 6),
    ("", {"/sys/fs/cgroup/cpu.max": "100000 100000\n"}, 8),
])
def test_a_quota_of_the_control_group_counts(cgroup: str, files: dict[str, str], cores: int) -> None:
    host = server({"/proc/self/cgroup": cgroup} | files)
    assert local.usable_cores(host) == cores


@pytest.mark.parametrize(("cgroup", "path", "limit", "memory"), [
    (V2, f"{OUTER}/job.scope/memory.max", "max\n", 16384000 * 1024),
    (V2, f"{OUTER}/job.scope/memory.max", "4294967296\n", 4 << 30),
    (V2, f"{OUTER}/memory.max", "4294967296\n", 4 << 30),
    (V1, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n", 1 << 30),
    (V1, "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n", 16384000 * 1024),
])
def test_a_memory_limit_of_the_control_group_counts(cgroup: str, path: str, limit: str, memory: int) -> None:
    host = server({"/proc/self/cgroup": cgroup, path: limit})
    assert local.usable_memory(host) == memory


@pytest.mark.parametrize(("output", "gpus"), [
    ("", ()),
    ("No devices were found\n", ()),
    ("NVIDIA GB10, [N/A]\n", (Gpu("NVIDIA GB10"),)),
    ("Tesla T4, 15360 MiB\nNVIDIA A100-SXM4-80GB, 81920 MiB\n",
     (Gpu("Tesla T4", 15360 << 20), Gpu("NVIDIA A100-SXM4-80GB", 81920 << 20))),
])
def test_gpus_are_as_nvidia_smi_lists_them(output: str, gpus: tuple[Gpu, ...]) -> None:
    assert local.nvidia_gpus(Recorded(outputs={"nvidia-smi": output})) == gpus
    assert local.nvidia_gpus(Recorded()) == ()


def test_unlike_gpus_are_both_named() -> None:
    host = server()
    host.outputs["nvidia-smi"] = "Tesla T4, 15360 MiB\nNVIDIA L4, 23034 MiB\nTesla T4, 15360 MiB\n"
    assert local.this_machine(host).name.endswith(", 8 cores, 2 x Tesla T4, 1 x NVIDIA L4")


@pytest.mark.parametrize("missing", ["/proc/meminfo", "/proc/self/status"])
def test_without_proc_it_says_so(missing: str) -> None:
    host = server({"/proc/cpuinfo": ""})
    del host.files[missing]
    with pytest.raises(ProbeFailed, match="not known") as caught:
        local.this_machine(host)
    assert missing in caught.value.where


def test_surroundings() -> None:
    host = server({"/proc/loadavg": "1.25 0.80 0.60 2/300 4711\n"})
    around = local.surroundings(local.this_machine(host), host)
    assert around.load_before == 1.25
    assert around.machine.cores == 8
    assert around.python_version == platform.python_version()
    assert around.rooftop_version == __version__
    assert around.other_cpu_share is None
    assert local.surroundings(around.machine, Recorded()).load_before == 0.0


def test_this_machine_itself() -> None:
    machine = local.this_machine()
    assert 1 <= machine.cores <= len(os.sched_getaffinity(0))
    assert 0 < machine.memory_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert f"Linux {platform.release()}" in machine.system
    assert platform.node() not in machine.name
    assert local.surroundings(machine).load_before >= 0


def test_the_local_host_reads_and_runs() -> None:
    host: Host = local.LocalHost()
    assert host.read(__file__) == Path(__file__).read_text(encoding="utf-8")
    assert host.read("/proc/no-such-file") is None
    assert host.read("/proc") is None
    assert host.run((sys.executable, "-c", "print('said')")) == "said\n"
    assert host.run((sys.executable, "-c", "raise SystemExit(3)")) is None
    assert host.run(("no-such-program-here",)) is None
    assert host.run((sys.executable, "-c", "import time; time.sleep(60)"), timeout_s=0.2) is None
