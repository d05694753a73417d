"""A stand-in for docker, systemd-run and systemctl: keeps servers apart from the client that started them.

`run` starts the server in a session of its own (as a daemon would), writes its pid under ROOFTOP_STUB and waits for it;
`stop` and `rm` end it; `inspect` and `show` tell its pid.  Every call is noted with its words.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

FOLDER = Path(os.environ["ROOFTOP_STUB"])


def server(words: list[str], image: str) -> list[str]:
    if image in words:
        at = words.index(image)
        return [words[words.index("--entrypoint") + 1], *words[at + 1:]]
    return words[words.index("--") + 1:]


def run(name: str, words: list[str]) -> int:
    flags = [words[at + 1] for at, word in enumerate(words) if word in ("--env", "--setenv")]
    environment = {**os.environ, **dict(flag.split("=", 1) for flag in flags if "=" in flag)}
    process = subprocess.Popen(server(words, "example/image:1"), start_new_session=True, env=environment)
    (FOLDER / name).write_text(str(process.pid))
    return process.wait()


def stop(name: str) -> int:
    file = FOLDER / name
    if not file.exists():
        return 1
    with suppress(ProcessLookupError):
        os.killpg(int(file.read_text()), signal.SIGKILL)
    return 0


def main() -> int:
    words = sys.argv[1:]
    with (FOLDER / "calls").open("a") as calls:
        calls.write(json.dumps(words) + "\n")
    if "--name" in words or "--unit" in words:
        time.sleep(float(os.environ.get("ROOFTOP_STUB_SLOW", "0")))
        return run(words[words.index("--name" if "--name" in words else "--unit") + 1], words)
    if "inspect" in words or "show" in words:
        file = FOLDER / words[-1]
        sys.stdout.write(("MainPID=" if "show" in words else "") + (file.read_text() if file.exists() else "0") + "\n")
        return 0
    return stop(words[-1])


if __name__ == "__main__":
    sys.exit(main())
