"""What the load process is told: where to send, what to send, when to stop."""

from dataclasses import dataclass

from rooftop.domain.workload import Api, Workload


@dataclass(frozen=True, slots=True)
class Target:
    """A server (or several replicas of one) as found by probing it.

    urls: base URLs without the API path, one a replica; requests are spread over them by least open streams.
    headers: extra request headers; secret_headers: (header, environment variable) pairs whose values are read from the
    environment at the last moment and never written anywhere.
    ignore_eos, min_tokens, stream_usage, usage_per_chunk, token_ids: fields that the server takes, by trial.
    tokenize_path: the server's route from text to token ids, "" where it has none.
    """

    urls: tuple[str, ...]
    model: str
    api: Api = "chat"
    headers: tuple[tuple[str, str], ...] = ()
    secret_headers: tuple[tuple[str, str], ...] = ()
    ignore_eos: bool = False
    min_tokens: bool = False
    stream_usage: bool = True
    usage_per_chunk: bool = False
    token_ids: bool = False
    tokenize_path: str = ""
    max_model_len: int | None = None
    verify_tls: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request body, ready to send, and the prompt length in tokens that it was made for (None = approximate)."""

    body: bytes
    input_tokens: int | None
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Job:
    """One load level for the load process: prompts are sent in order and must be enough for the stop rule.

    timeout_s: the longest silence on one stream before it counts as stalled.  processes: how many load processes
    share the level; each has its part of users, schedule and prompts.
    """

    target: Target
    workload: Workload
    spool: str
    timeout_s: float = 120.0
    processes: int = 1
