"""What a model is, as its own files say."""

from rooftop.domain.architecture import Architecture
from rooftop.models.read import Fetch, read_model


def look_at_model(path: str, fetch: Fetch | None = None) -> Architecture:
    """The architecture of a folder, a config.json or a GGUF file; of a hub name only through `fetch`.

    Raises BadInput that says what is missing or contradicts itself.
    """
    return read_model(path, fetch)
