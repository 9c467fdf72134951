"""What several commands of the court take."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

TaskId: TypeAlias = Annotated[str, typer.Argument(metavar="TASK", help="The id of the task.")]
