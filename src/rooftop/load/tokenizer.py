"""Text to token ids: by a local tokenizer file or by the server's own route."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rooftop.errors import BadInput, MissingPart, ServerRefused
from rooftop.load import http
from rooftop.load.job import Target

ROUTES = ("/tokenize", "/v1/tokenize")


class Tokenizer(Protocol):
    """Counts tokens as the model does, without the special ones that a prompt may get in addition."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text."""
        ...

    def __hash__(self) -> int:
        """Equal for tokenizers that give the same ids, so that what is known of one is not asked twice."""
        ...


def open_tokenizer(target: Target, path: str) -> Tokenizer | None:
    """The tokenizer at `path` (a file or a folder), else the server's route, else None.

    Raises BadInput for a path without a tokenizer, MissingPart where the package `tokenizers` is not installed.
    """
    if path:
        return _LocalTokenizer(path)
    return _RouteTokenizer(target) if target.tokenize_path else None


def find_route(server: http.Session, model: str) -> str:
    """The path of the server's route from text to token ids, "" where it has none that answers with ids."""
    for path in ROUTES:
        if _ids_in(server.post(path, _question(model, "one two three"))):
            return path
    return ""


def _question(model: str, text: str) -> dict[str, Any]:
    """One body that every known route understands: llama-server reads `content`, vLLM and SGLang read `prompt`."""
    return {"model": model, "prompt": text, "add_special_tokens": False, "content": text, "add_special": False}


def _ids_in(answer: http.Answer) -> list[int]:
    said = answer.json() if answer.status == 200 else None
    ids = said.get("tokens") if isinstance(said, dict) else None
    return ids if isinstance(ids, list) and all(isinstance(token, int) for token in ids) else []


@dataclass(frozen=True, slots=True)
class _RouteTokenizer:
    target: Target

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        path, found = self.target.tokenize_path, []
        with http.session(self.target) as server:
            for text in texts:
                answer = server.post(path, _question(self.target.model, text))
                ids = _ids_in(answer)
                if not ids:
                    said = http.refusal(server, path, answer)
                    raise ServerRefused(f"the tokenizer route gave no token ids: {said.what}", where=said.where,
                                        remedy="give the model's tokenizer with --tokenizer")
                found.append(ids)
        return found


class _LocalTokenizer:
    def __init__(self, path: str) -> None:
        file = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"there is no readable tokenizer.json: {error}", where=str(file),
                           remedy="give the model's folder or its tokenizer.json") from error
        try:
            content = json.loads(text)
        except ValueError as error:
            raise BadInput(f"the tokenizer is not JSON: {error}", where=str(file)) from error
        if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
            raise BadInput("this is no tokenizer: it has no table `model`", where=str(file),
                           remedy="give the model's folder or its tokenizer.json")
        try:
            import tokenizers
        except ModuleNotFoundError as error:
            raise MissingPart("a local tokenizer needs the package `tokenizers`", where="--tokenizer",
                              remedy="pip install 'rooftop[tokenizer]'") from error
        self._inner = tokenizers.Tokenizer.from_str(text)
        self._inner.no_truncation()
        self._inner.no_padding()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(one.ids) for one in self._inner.encode_batch(list(texts), add_special_tokens=False)]
