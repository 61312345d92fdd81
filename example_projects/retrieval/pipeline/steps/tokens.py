"""What a token is, in passages and in questions alike. Uses nothing of other steps."""

import re

import bm25s
import Stemmer

STOP_WORDS = {"none": None, "english": "en", "english_plus": "en_plus"}
IDENTIFIER = re.compile(r"\w*(?:_\w|[a-z][A-Z])\w*")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def tokens(texts, settings):
    """Split each text into lower-case words."""
    if settings["identifiers"] != "whole":
        keep = settings["identifiers"] == "both"
        texts = [IDENTIFIER.sub(lambda m: _parts(m.group(), keep), t) for t in texts]
    stemmer = settings["stemmer"]
    return bm25s.tokenize(
        texts,
        stopwords=STOP_WORDS[settings["stop_words"]],
        stemmer=None if stemmer == "none" else Stemmer.Stemmer(stemmer),
        return_ids=False,
        show_progress=False,
    )


def letters(texts, settings):
    """Split each text into overlapping sequences of letters, word by word."""
    size = settings["size"]
    sequences = []
    for text in texts:
        words = [f"<{word}>" for word in re.findall(r"[a-z0-9]+", text.lower())]
        sequences.append(
            [w[i : i + size] for w in words for i in range(max(1, len(w) - size + 1))]
        )
    return sequences


def _parts(identifier, keep):
    parts = " ".join(PART.findall(identifier))
    return f"{identifier} {parts}" if keep else parts
