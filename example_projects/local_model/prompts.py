"""A prompt file, a task and a text make a request to the model's server."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks import Example
from tasks import Task

PICKS = 8
STOPS: Mapping[str, list[str]] = {"none": [], "line": ["\n"], "paragraph": ["\n\n"]}
ORDERS: Mapping[str, Callable[[list[Example]], list[Example]]] = {
    "listed": list,
    "reversed": lambda shown: shown[::-1],
    "short_first": lambda shown: sorted(shown, key=_length),
    "long_first": lambda shown: sorted(shown, key=_length, reverse=True),
}


def build_request(directory: Path, task: Task, text: str) -> dict[str, Any]:
    """The body for `/completion` of llama.cpp's server.

    Args:
        directory: where `prompt.toml` is; it is read at every call.
        task: the pool of examples, and the grammar of right answers.
        text: the text in question.

    Raises:
        ValueError: the file names a template, an example or a way that is not there.
    """
    settings = tomllib.loads((directory / "prompt.toml").read_text(encoding="utf-8"))
    template = _chosen("template", settings["template"], settings["templates"])
    answer = settings["answer"]
    grammars = {"none": "", "compact": task.grammar}
    body: dict[str, Any] = {
        "prompt": _prompt(template, _shown(settings["examples"], task), text),
        "n_predict": answer["tokens"],
        "stop": _chosen("answer.stop", answer["stop"], STOPS),
        "temperature": 0,
        "cache_prompt": True,  # the examples are the same for all texts
    }
    grammar = _chosen("answer.grammar", answer["grammar"], grammars)
    return {**body, "grammar": grammar} if grammar else body


def _shown(settings: Mapping[str, Any], task: Task) -> list[Example]:
    """The picks that are shown, each once, in their order."""
    number = min(settings["number"], PICKS)
    picks = [settings[f"pick_{place}"] for place in range(1, number + 1)]
    shown = [_chosen("a pick", pick, task.examples) for pick in dict.fromkeys(picks)]
    return _chosen("examples.order", settings["order"], ORDERS)(shown)


def _prompt(template: Mapping[str, str], shown: list[Example], text: str) -> str:
    # not str.format: there is JSON in these texts
    examples = (
        template["example"]
        .replace("{text}", example.text)
        .replace("{answer}", example.answer)
        for example in shown
    )
    return (
        template["head"] + "".join(examples) + template["query"].replace("{text}", text)
    )


def _chosen(what: str, name: str, options: Mapping[str, Any]) -> Any:
    if name not in options:
        raise ValueError(
            f"prompt.toml: {what} is {name!r}; write one of {', '.join(options)}"
        )
    return options[name]


def _length(example: Example) -> int:
    return len(example.text)
