"""What a pool of KV cache holds: tokens and whole requests, by each engine's rule."""

from collections.abc import Sequence
from dataclasses import dataclass

from rooftop.perfmodel.budget import STATE_RATIO, STATES_A_REQUEST
from rooftop.perfmodel.memory import Cache

PAGE = {"vllm": 16, "sglang": 1, "llamacpp": 1}
SWA_SHARE = 0.8
"""SGLang: tokens of sliding layers to those of full ones (`--swa-full-tokens-ratio`, fields/schedule.py:150)."""
UNBOUNDED = 1 << 40


@dataclass(frozen=True, slots=True)
class Held:
    """Tokens and requests of the asked length that a pool holds, its longest request, bytes set aside for states."""

    tokens: int
    users: int
    longest: int
    state_bytes: float = 0.0


def held(engine: str, caches: Sequence[Cache], pool: float, request: int, context: int) -> Held:
    """What `pool` bytes on one GPU hold.

    tokens: as the engine prints them; vLLM counts requests of its longest context (V:v1/core/kv_cache_utils.py:1120),
    SGLang the layers that keep every token (S:model_executor/pool_configurator.py).
    """
    if pool <= 0:
        return Held(0, 0, 0)
    if engine == "sglang" and not any(cache.ratio for cache in caches):
        return _sglang(caches, pool, request)
    growth = sum(cache.growth for cache in caches)
    each = sum(cache.request_bytes(request, PAGE.get(engine, 1)) for cache in caches)
    full = sum(cache.request_bytes(context, PAGE.get(engine, 1)) for cache in caches)
    fixed = sum(cache.request_bytes(min(request, cache.window)) if cache.window else cache.state_bytes
                for cache in caches)
    longest = int((pool - fixed) / growth) if growth else UNBOUNDED
    return Held(int(pool / full * context) if full else UNBOUNDED, int(pool // each) if each else UNBOUNDED,
                max(0, longest))


def need(engine: str, caches: Sequence[Cache], request: int) -> float:
    """Bytes of pool that one request of this length needs."""
    growing, sliding, states = _sums(caches)
    if engine != "sglang" or any(cache.ratio for cache in caches):
        return sum(cache.request_bytes(request, PAGE.get(engine, 1)) for cache in caches)
    cells = request * (growing + SWA_SHARE * sliding if growing else sliding)
    return max(cells * (1 + STATE_RATIO), (STATES_A_REQUEST + 2) * states * (1 + STATE_RATIO) / STATE_RATIO
               ) if states else cells


def _sums(caches: Sequence[Cache]) -> tuple[float, float, float]:
    """Bytes a token in layers that keep all, bytes a token in layers with a window, bytes of one state."""
    return (sum(cache.growth for cache in caches), sum(cache.row_bytes for cache in caches if cache.window is not None),
            sum(cache.state_bytes for cache in caches))


def _sglang(caches: Sequence[Cache], pool: float, request: int) -> Held:
    growing, sliding, states = _sums(caches)
    slots, set_aside = UNBOUNDED, 0.0
    if states:
        count = int((pool * STATE_RATIO / (1 + STATE_RATIO) - states) // states)
        if count < STATES_A_REQUEST:
            return Held(0, 0, 0)
        slots, set_aside = count // STATES_A_REQUEST, (count + 1) * states
    cell = growing + SWA_SHARE * sliding if growing else sliding
    if not cell:
        return Held(UNBOUNDED, slots, UNBOUNDED, set_aside)
    tokens = int((pool - set_aside) // cell)
    users = min(tokens // request, slots)
    window = max((cache.window for cache in caches if cache.window is not None), default=0)
    if window and growing:
        users = min(users, int(SWA_SHARE * tokens) // (min(request, window) + 1))
    elif window:
        users = min(slots, tokens // (min(request, window) + 1))
    return Held(tokens, users, tokens if growing else UNBOUNDED, set_aside)
