"""How a model is spread over GPUs or cores; its laws hold from birth."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Layout:
    """Parallel degrees of one deployment, always in the order tp, pp, dp, ep.

    tp: ranks that share each matrix.  pp: pipeline stages.  dp: independent replicas.
    ep: ranks that share the experts (1 = experts are cut like every other matrix).
    attention_dp: groups inside tp that each hold whole attention.  dcp: decode context parallel ranks inside tp.
    Raises ValueError for degrees that no engine could give a meaning.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    attention_dp: int = 1
    dcp: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            degree = getattr(self, field.name)
            if not isinstance(degree, int) or isinstance(degree, bool) or degree < 1:
                raise ValueError(f"{field.name} must be a whole number of at least 1, not {degree!r}")
        if (self.tp * self.dp) % self.ep:
            ranks = self.tp * self.dp
            raise ValueError(f"ep {self.ep} must divide tp x dp = {ranks}: experts are spread over those ranks")
        for name in ("attention_dp", "dcp"):
            degree = getattr(self, name)
            if self.tp % degree:
                raise ValueError(f"{name} {degree} must divide tp {self.tp}: it groups the ranks of tp")

    @property
    def ranks(self) -> int:
        """GPUs (or CPU workers) that the layout occupies."""
        return self.tp * self.pp * self.dp

    def __str__(self) -> str:
        """Degrees above 1 in their order, for instance `tp 4 x pp 2`; `tp 1` where there is none."""
        named = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return " x ".join(f"{name.replace('_', '-')} {degree}" for name, degree in named if degree > 1) or "tp 1"
