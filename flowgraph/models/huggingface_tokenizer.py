"""A Hugging Face tokenizer behind the interface of `flowgraph.tokenizers`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from transformers import AutoTokenizer

from flowgraph.models.hf_files import split_gguf


class HuggingFaceTokenizer:
    """Text to ids and back with a local model's own tokenizer; nothing is fetched."""

    def __init__(self, path: str, gguf_file: str | None = None) -> None:
        folder, gguf = split_gguf(path, gguf_file)
        options = {"gguf_file": gguf} if gguf else {}
        self.inner: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
        self.eos: int = self.inner.eos_token_id
        # Models without one of the two use the end's id, which is masked or absent anyway.
        self.bos: int = self.eos if self.inner.bos_token_id is None else self.inner.bos_token_id
        self.pad: int = self.eos if self.inner.pad_token_id is None else self.inner.pad_token_id

    @property
    def vocab(self) -> int:
        """Number of ids, special ones included."""
        return len(self.inner)

    def encode(self, text: str, *, bos: bool = False, eos: bool = False) -> list[int]:
        """The ids of `text`; special tokens spelled out in it count as such."""
        ids = cast(list[int], self.inner.encode(text, add_special_tokens=False))
        return [self.bos] * bos + ids + [self.eos] * eos

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, special ids left out."""
        return cast(str, self.inner.decode(list(ids), skip_special_tokens=True))

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The ids of a conversation, ready for the assistant's answer, by the model's template.

        Each message has `role` and `content`. Raises ValueError for a model without a template.
        """
        text = self.inner.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
        return self.encode(text)
