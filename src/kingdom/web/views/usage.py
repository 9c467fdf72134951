"""What a workflow has cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from kingdom.web.envelope import ApiModel
from kingdom.web.views.finding import find_workflow
from kingdom.web.views.work_desk import work_desk
from kingdom.workflow.spending import Spent

if TYPE_CHECKING:
    from kingdom.web.context import WebContext


class TokenCounts(ApiModel):
    """Tokens by their kind."""

    total: int = Field(examples=[18210])
    input: int = Field(examples=[9100])
    output: int = Field(examples=[2110])
    cache_read: int = Field(examples=[7000])
    cache_write: int = Field(examples=[0])


class Usage(ApiModel):
    """What the runs of a workflow that have ended used."""

    cost_usd: float = Field(examples=[0.42])
    tokens: TokenCounts
    runs: int = Field(examples=[3])
    by_work: dict[str, float] = Field(description="US dollars by the name of the work.", examples=[{"fix": 0.42}])


async def read_usage(context: WebContext, workflow_id: str) -> Usage:
    """What a workflow has used so far."""
    async with context.parts.store.reading() as tx:
        await find_workflow(tx, workflow_id)
    spent = (await work_desk(context).spent(fresh=True)).get(workflow_id, Spent())
    kinds = spent.by_class
    return Usage(
        cost_usd=round(spent.cost_usd, 6),
        tokens=TokenCounts(
            total=spent.tokens,
            input=kinds.input,
            output=kinds.output,
            cache_read=kinds.cache_read,
            cache_write=kinds.cache_write,
        ),
        runs=spent.runs,
        by_work={name: round(cost, 6) for name, cost in spent.by_work.items()},
    )
