"""The tokenizer of llama2.c: byte pairs, merged by score."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

_BEGIN, _BYTES = 1, 3  # the first token of every text; where the 256 tokens for single bytes begin


class Tokenizer:
    """Text to numbers, as the model has been trained on."""

    def __init__(self, path: Path, vocabulary: int) -> None:
        content = path.read_bytes()
        self.numbers: dict[bytes, int] = {}
        self.scores: dict[bytes, float] = {}
        position = 4  # past the length of the longest token
        for number in range(vocabulary):
            if position + 8 > len(content):
                raise ValueError(f"{path} holds {number} tokens where {vocabulary} are needed")
            score, length = struct.unpack_from("<fi", content, position)
            token = content[position + 8 : position + 8 + length]
            position += 8 + length
            self.numbers[token] = number  # a character's own token comes after that of its byte
            self.scores[token] = score

    def __call__(self, text: str, begin: bool = True) -> list[int]:
        """The tokens of `text`, which is taken to begin with a space."""
        pieces = [character.encode() for character in f" {text}"]
        while True:
            pairs = [a + b for a, b in pairwise(pieces)]
            known = [i for i, pair in enumerate(pairs) if pair in self.numbers]
            if not known:
                break
            best = max(known, key=lambda i: (self.scores[pairs[i]], -i))
            pieces[best : best + 2] = [pairs[best]]
        found = [_BEGIN] if begin else []
        for piece in pieces:
            alone = self.numbers.get(piece)
            found += [byte + _BYTES for byte in piece] if alone is None else [alone]
        return found
