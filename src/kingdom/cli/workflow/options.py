"""What several commands of workflows take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

HomeOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="The folder whose workflows/ is meant; any folder will do, it need not be a court's. "
        "Else KINGDOM_HOME, else the one around the working folder.",
        show_default=False,
    ),
]
StoreOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="KINGDOM_WORKFLOW_STORE",
        show_envvar=True,
        metavar="URL",
        help="The store: sqlite:///file.db or postgresql://…. Else workflows/workflows.db in the home.",
        show_default=False,
    ),
]
WorkflowWord: TypeAlias = Annotated[
    str, typer.Argument(metavar="WORKFLOW", help="Its id, the beginning or end of that, or its name.")
]
CheckpointWord: TypeAlias = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="Its id, the beginning or end of that, or the name of its work.")
]
