"""llama.cpp's server: its command, its rules, its words."""

from rooftop.domain.engine import Command, Engine, Pages, Program, Refusal, Seat
from rooftop.domain.launch import Fact
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.engines._llamacpp_args import KV_DTYPES
from rooftop.engines._llamacpp_witness import PHASES, LlamaCppWitness

OURS = {"model": "the study's model", "host": "the launcher", "port": "the launcher", "alias": "the model's name"}
SHORT = {
    "m": "model", "t": "threads", "tb": "threads-batch", "c": "ctx-size", "b": "batch-size", "ub": "ubatch-size",
    "fa": "flash-attn", "ctk": "cache-type-k", "ctv": "cache-type-v", "ngl": "n-gpu-layers",
    "gpu-layers": "n-gpu-layers", "sm": "split-mode", "ts": "tensor-split", "mg": "main-gpu", "np": "parallel",
    "cb": "cont-batching", "kvu": "kv-unified", "cram": "cache-ram", "lv": "verbosity", "log-verbosity": "verbosity",
    "a": "alias",
}
ON_OFF = {"flash-attn", "fit", "log-colors", "reasoning"}
NEGATABLE = {
    "perf", "escape", "kv-offload", "repack", "mmap", "direct-io", "op-offload", "log-prefix", "log-timestamps",
    "kv-unified", "cache-idle-slots", "context-shift", "warmup", "cont-batching", "mmproj", "ui", "cache-prompt",
    "slots", "models-autoload", "jinja", "prefill-assistant", "cors-credentials",
}
BARE = {"metrics", "props", "swa-full", "check-tensors", "cpu-moe", "no-host", "reuse-port", "embedding", "reranking"}
VALUED = set(SHORT.values()) - NEGATABLE - ON_OFF
_TALKATIVE = 4
_PAD = 256
_DEFAULT_BATCH = 2048
_PLAIN_KV = ("f32", "f16", "bf16")


class LlamaCpp:
    """`llama-server`, the user's own or the one inside the wheel `xllamacpp`.

    Settings are llama-server's long flags without dashes.  Unless the plan says otherwise it is asked for metrics and
    for the log level at which it tells its batch sizes, KV types and buffers (some 30 lines a request, none a token),
    and for as many threads as it has cores.
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        """`llamacpp`."""
        return "llamacpp"

    @property
    def programs(self) -> tuple[Program, ...]:
        """A `llama-server` on the path first: it is the user's own choice."""
        return (
            Program("llama-server", ("llama-server",), install="put llama.cpp's llama-server on the path"),
            Program("xllamacpp", ("{python}", "-P", "-m", "rooftop.llama_server"), module="xllamacpp",
                    install="pip install 'rooftop[llamacpp]'"),
        )

    @property
    def routes_dp(self) -> bool:
        """One llama-server is one replica."""
        return False

    @property
    def pages(self) -> Pages:
        """`/health` answers 503 while the model loads."""
        return Pages(ready="/health", metrics="/metrics", info=("/props", "/slots", "/v1/models", "/metrics"))

    @property
    def witness(self) -> LlamaCppWitness:
        """The reader of its words."""
        return LlamaCppWitness()

    def command(self, plan: Plan, seat: Seat) -> Command:
        """The plan's settings as flags, after those that rooftop sets itself."""
        settings = {_long(setting.name): setting.value for setting in plan.settings}
        asked: dict[str, SettingValue] = {"metrics": True, "verbosity": _TALKATIVE}
        if seat.cores:
            asked["threads"] = len(seat.cores)
        if (mode := _split_mode(plan)) is not None:
            asked["split-mode"] = mode
        argv = [*seat.program, "--model", plan.model.path, "--alias", plan.model.name,
                "--host", seat.host, "--port", str(seat.port)]
        for name, value in {**asked, **settings}.items():
            argv += _flag(name, value)
        return Command(tuple(argv), tuple((one.name, str(one.value)) for one in plan.environment))

    def refuses(self, plan: Plan) -> Refusal | None:
        """llama-server's own rules on layouts and on settings that exclude each other."""
        return _refuses_layout(plan) or _refuses_settings(plan)

    def asks(self, plan: Plan) -> tuple[tuple[str, Fact], ...]:
        """What must hold: slots, context of a slot, batch, KV format, attention, split."""
        asked: list[tuple[str, Fact]] = []
        parallel, context = _whole(plan, "parallel"), _whole(plan, "ctx-size")
        unified = _setting(plan, "kv-unified") is True
        if parallel is not None and parallel > 0:
            asked.append(("limits.max_running", parallel))
        if context and (unified or (parallel is not None and parallel > 0)):
            share = context if unified else context // (parallel or 1)
            asked.append(("limits.max_model_len", -(-share // _PAD) * _PAD))
        if (batch := _whole(plan, "batch-size")) and (not context or batch <= context):
            asked.append(("limits.chunk_tokens", batch))
        key, value = (_setting(plan, f"cache-type-{part}") for part in "kv")
        if key is not None and key == value:
            asked.append(("kv.dtype", KV_DTYPES.get(str(key), str(key))))
        flash = _setting(plan, "flash-attn")
        if flash in (True, False, "on", "off"):
            asked.append(("attention.backend", "flash" if flash in (True, "on") else "plain"))
        if (mode := _split_mode(plan) or _setting(plan, "split-mode")) is not None:
            asked.append(("layout.split_mode", mode))
        if plan.layout is not None and plan.layout.pp > 1:
            asked.append(("layout.ranks_seen", f"gpu{plan.layout.pp - 1}"))
        if _setting(plan, "n-gpu-layers") == "all":
            asked.append(("layout.layers_off_gpu", 0))
        return tuple(asked)

    def phase(self, line: str) -> str | None:
        """The start-up phase that this line begins."""
        return next((name for words, name in PHASES if words in line), None)


def _long(name: str) -> str:
    """A setting's long flag, without dashes."""
    bare = name.lstrip("-")
    return SHORT.get(bare, bare)


def _setting(plan: Plan, name: str) -> SettingValue | None:
    return next((one.value for one in plan.settings if _long(one.name) == name), None)


def _whole(plan: Plan, name: str) -> int | None:
    value = _setting(plan, name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _flag(name: str, value: SettingValue) -> list[str]:
    if name in ON_OFF and isinstance(value, bool):
        return [f"--{name}", "on" if value else "off"]
    if value is True:
        return [f"--{name}"]
    if value is False:
        return [f"--no-{name}"] if name in NEGATABLE else []
    return [f"--{name}", str(value)]


def _split_mode(plan: Plan) -> str | None:
    """How the layout is said in llama-server's words: tp is a tensor split, pp a layer split."""
    if plan.layout is None:
        return None
    return "tensor" if plan.layout.tp > 1 else "layer" if plan.layout.pp > 1 else None


def _refuses_layout(plan: Plan) -> Refusal | None:
    layout = plan.layout
    if layout is None:
        return None
    for name in ("ep", "attention_dp", "dcp"):
        if getattr(layout, name) > 1:
            return Refusal(f"llama-server has no {name}", f"the layout asks for {name} {getattr(layout, name)}",
                           f"leave {name} at 1; dp is n servers")
    split = layout.tp * layout.pp
    if layout.tp > 1 and layout.pp > 1:
        return Refusal("one llama-server splits a model one way", f"tp {layout.tp} and pp {layout.pp} are two",
                       f"tp {split} or pp {split}")
    if plan.machine is not None and split > 1:
        gpus = len(plan.machine.gpus)
        if split * layout.dp > gpus:
            here = "has none" if gpus == 0 else f"has {gpus}"
            return Refusal("llama-server splits a model over GPUs only", f"{layout} needs {split * layout.dp} GPUs and "
                           f"this machine {here}", f"dp {split} (that many servers, each on its share of the cores)"
                           if gpus == 0 else f"at most {gpus} GPUs in all")
    asked, said = _split_mode(plan), _setting(plan, "split-mode")
    if asked is not None and said is not None and said != asked:
        return Refusal("split-mode follows from the layout", f"{layout} is split-mode {asked}, not {said}",
                       "remove split-mode from the settings")
    return None


def _refuses_settings(plan: Plan) -> Refusal | None:
    seen: dict[str, Setting] = {}
    for setting in plan.settings:
        name = _long(setting.name)
        if name in OURS:
            return Refusal(f"rooftop sets {name} itself", f"the settings name {setting.name}, which comes from "
                           f"{OURS[name]}", f"remove {setting.name}")
        if name in seen:
            return Refusal("each flag once", f"{seen[name].name} and {setting.name} are the same flag",
                           f"remove {setting.name}")
        seen[name] = setting
        value = setting.value
        if isinstance(value, bool) and (name in VALUED or (not value and name not in NEGATABLE | ON_OFF | BARE)):
            what = "takes a value" if name in VALUED else "cannot be switched off"
            return Refusal(f"--{name} {what}", f"{setting.name} is {str(value).lower()}",
                           f"give {setting.name} a value, or leave it out")
    parallel = _setting(plan, "parallel")
    if parallel is not None and (_whole(plan, "parallel") is None or (parallel != -1 and int(parallel) < 1)):
        return Refusal("parallel is a number of slots", f"parallel is {parallel!r}", "a whole number from 1")
    quantised = str(_setting(plan, "cache-type-v") or "f16") not in _PLAIN_KV
    if quantised and _setting(plan, "flash-attn") in (False, "off"):
        return Refusal("a quantised V cache needs flash attention", "flash-attn is off",
                       "flash-attn = true, or cache-type-v = \"f16\"")
    if _split_mode(plan) == "tensor":
        if _setting(plan, "flash-attn") in (False, "off"):
            return Refusal("a tensor split needs flash attention", "flash-attn is off", "flash-attn = true")
        if quantised or str(_setting(plan, "cache-type-k") or "f16") not in _PLAIN_KV:
            return Refusal("a tensor split takes a KV cache of f32, f16 or bf16 only", "the cache type is quantised",
                           "cache-type-k = \"f16\" and cache-type-v = \"f16\"")
    return None


ENGINE: Engine = LlamaCpp()
