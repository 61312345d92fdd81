"""``[tool.pytest_evo.agent_options]``: how a coding agent is run, reached and paid."""

from __future__ import annotations

from typing import Literal
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import Field
from pydantic import field_validator
from pydantic import model_validator
from pydantic import StrictBool

from pytest_evo.settings_text import check_prices
from pytest_evo.settings_text import Number
from pytest_evo.settings_text import Seconds
from pytest_evo.settings_text import Text
from pytest_evo.settings_text import Texts
from pytest_evo.settings_text import Variable


class AgentSettings(BaseModel):
    """Everything about the agent but its name; times in seconds, prices per million."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: Text | None = Field(default=None, examples=["gpt-5-mini"])
    api_base: Text | None = Field(default=None, examples=["http://127.0.0.1:8000/v1"])
    api_key_env: Variable | None = Field(default=None, examples=["EVO_OPENAI_API_KEY"])
    sandbox: Literal["auto", "required", "never"] = Field(
        default="auto", examples=["required"]
    )
    network: StrictBool = Field(default=False, examples=[True])
    timeout: Seconds = Field(default=1200.0, gt=0, examples=["20m"])
    env_allow: Texts = Field(default=(), examples=[["SSL_CERT_FILE"]])
    show: Texts = Field(default=(), examples=[["/opt/tools"]])
    prompt: Text | None = Field(default=None, examples=["evals/agent-prompt.md"])
    input_usd: Number | None = Field(default=None, ge=0, examples=[0.25])
    cached_usd: Number | None = Field(default=None, ge=0, examples=[0.025])
    output_usd: Number | None = Field(default=None, ge=0, examples=[2.0])

    @field_validator("api_base")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        where = urlsplit(value)
        if where.scheme not in ("http", "https") or not where.hostname:
            raise ValueError("an address is needed, like https://api.openai.com/v1")
        if where.username or where.password or where.query:
            # the value may hold a key, so it is not repeated by this text
            raise ValueError("no key may be in the address; use api_key_env")
        return value

    @model_validator(mode="after")
    def _prices_go_together(self) -> Self:
        check_prices(
            input_usd=self.input_usd,
            cached_usd=self.cached_usd,
            output_usd=self.output_usd,
        )
        return self


AGENT_TUNING = frozenset(
    {
        "api_base",
        "api_key_env",
        "cached_usd",
        "env_allow",
        "input_usd",
        "network",
        "output_usd",
        "sandbox",
        "show",
        "timeout",
    }
)
"""Keys that may change between a run and its resume: they decide no answer."""
