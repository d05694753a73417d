"""What NCCL says inside any engine's log: transports, channels, peer-to-peer, GPUDirect, the devices it names."""

import re
from collections.abc import Iterator

from rooftop.engines._lines import Line, Notes

_CHANNEL = re.compile(r"NCCL INFO (?:Channel|Ring) \S+ : .* via (?P<way>\S+(?: shared memory)?)")
_TRANSPORTS = (("p2p", re.compile(r"^P2P")), ("shm", re.compile(r"^SHM|^DIRECT SHARED")), ("nvls", re.compile("^NVLS")),
               ("net_socket", re.compile("SOCKET")), ("net_ib", re.compile("IB|ROCE|UCX|GDRDMA")))
_COUNT = re.compile(r"NCCL INFO .*?\b(?P<n>\d+) coll channels")
_REFUSED = "P2P is disabled between connected GPUs"
_SWITCHED_OFF = re.compile(r"NCCL_P2P_DISABLE(?:=| set by environment to )[\"']?1\b")
_DIRECT = re.compile(r"GPU Direct RDMA (?:\([^)]*\) )?(?P<on>[Ee]nabled|[Dd]isabled) for HCA")
_PROCESS_GPU = re.compile(r"\[(\d+)\] (?:\S+ )?NCCL (?:INFO|WARN)")
# In brackets stands the device or, in older versions, its bus (`16[17000]`), which is no number of a device.
_DEVICES = re.compile(
    r"connected GPUs (\d+) and (\d+)|\bcudaDev (\d+)|\bGPU (\d+)(?: has a|; [\d.]+ \w+) total capacity|"
    r"device cuda:(\d+)|(?:Channel|Ring) \d+\S* : \d+\[(\d{1,3})\] -> \d+\[(\d{1,3})\]")


def devices(body: str) -> Iterator[int]:
    """The numbers of the GPUs that a line of NCCL or of an allocation names."""
    if "NCCL" in body or "GPU" in body or "cuda:" in body:
        for pattern in (_PROCESS_GPU, _DEVICES):
            for match in pattern.finditer(body):
                yield from (int(device) for device in match.groups() if device is not None)


class Nccl:
    """Reads NCCL's lines; several kinds of transport together are `mixed`."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._transports: dict[str, Line] = {}

    def read(self, line: Line) -> None:
        """Read one line."""
        body = line.body
        if "NCCL" not in body and "GPU Direct" not in body and _REFUSED not in body:
            return
        channel, count, direct = _CHANNEL.search(body), _COUNT.search(body), _DIRECT.search(body)
        if channel:
            way = channel["way"].upper()
            kind = next((name for name, pattern in _TRANSPORTS if pattern.search(way)), None)
            if kind:
                self._transports[kind] = line
            if kind == "net_ib" and "/GDRDMA" in way:
                self._notes.add("nccl.gpu_direct", True, "built", line)
        if count:
            self._notes.add("nccl.channels", int(count["n"]), "built", line)
        if _REFUSED in body:
            self._notes.add("nccl.p2p", False, "built", line)
        if _SWITCHED_OFF.search(body):
            self._notes.add("nccl.p2p", False, "asked", line)
        if direct:
            self._notes.add("nccl.gpu_direct", direct["on"].lower() == "enabled", "built", line)

    def close(self) -> None:
        """Note how the channels are connected."""
        if self._transports:
            proof = max(self._transports.values(), key=lambda line: line.number)
            kind = next(iter(self._transports)) if len(self._transports) == 1 else "mixed"
            self._notes.add("nccl.transport", kind, "built", proof)
