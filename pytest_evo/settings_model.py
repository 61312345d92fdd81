"""``[tool.pytest_evo.model_options]``: how the language model is reached and paid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from typing import Any
from typing import Literal
from typing import Self

from pydantic import BaseModel
from pydantic import BeforeValidator
from pydantic import ConfigDict
from pydantic import Field
from pydantic import field_validator
from pydantic import model_validator
from pydantic import StrictBool

from pytest_evo.settings_text import check_prices
from pytest_evo.settings_text import Count
from pytest_evo.settings_text import Number
from pytest_evo.settings_text import Positive
from pytest_evo.settings_text import Seconds
from pytest_evo.settings_text import Text
from pytest_evo.settings_text import Variable

_OURS = frozenset(
    {
        "api_base",
        "api_key",
        "base_url",
        "max_retries",
        "max_tokens",
        "messages",
        "model",
        "num_retries",
        "response_format",
        "stream",
        "temperature",
        "timeout",
        "tools",
    }
)


def _table(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise ValueError("a table is needed")


class ModelSettings(BaseModel):
    """Everything about the model but its name; times in seconds, prices per million."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    api_base: Text | None = Field(default=None, examples=["http://127.0.0.1:8000/v1"])
    api_key_env: Variable | None = Field(default=None, examples=["EVO_OPENAI_API_KEY"])
    share_key: StrictBool = Field(default=False, examples=[True])
    temperature: Number | None = Field(default=None, ge=0, le=2, examples=[0.7])
    max_tokens: Positive = Field(default=16_000, examples=[16000])
    tools: Literal["auto", "never"] = Field(default="auto", examples=["never"])
    steps: Positive = Field(default=40, examples=[40])
    prompt_bytes: Annotated[Positive, Field(ge=8_000)] = Field(
        default=200_000, examples=[200000]
    )
    prompts: Text | None = Field(default=None, examples=["evals/prompts"])
    timeout: Seconds = Field(default=300.0, gt=0, examples=[300])
    retries: Count = Field(default=6, examples=[6])
    max_wait: Seconds = Field(default=600.0, examples=["10m"])
    requests_per_minute: Positive | None = Field(default=None, examples=[60])
    input_usd: Number | None = Field(default=None, ge=0, examples=[0.25])
    cached_usd: Number | None = Field(default=None, ge=0, examples=[0.025])
    output_usd: Number | None = Field(default=None, ge=0, examples=[2.0])
    extra: Annotated[dict[str, Any], BeforeValidator(_table)] = Field(
        default_factory=dict, examples=[{"reasoning_effort": "low"}]
    )

    @field_validator("extra")
    @classmethod
    def _leaves_ours_alone(cls, value: dict[str, Any]) -> dict[str, Any]:
        taken = sorted(_OURS.intersection(value))
        if taken:
            raise ValueError(
                f"{', '.join(taken)} cannot be set here; use the keys of "
                "[tool.pytest_evo.model_options] itself"
            )
        return value

    @model_validator(mode="after")
    def _prices_go_together(self) -> Self:
        check_prices(
            input_usd=self.input_usd,
            cached_usd=self.cached_usd,
            output_usd=self.output_usd,
        )
        return self


TUNING = frozenset(
    {
        "api_base",
        "api_key_env",
        "cached_usd",
        "input_usd",
        "max_wait",
        "output_usd",
        "requests_per_minute",
        "retries",
        "share_key",
        "timeout",
    }
)
"""Keys that may change between a run and its resume: they decide no answer."""
