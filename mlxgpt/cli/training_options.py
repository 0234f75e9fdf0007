"""Options that every training has, typed once: where it goes, its settings, its optimizer."""

from pathlib import Path
from typing import Annotated

import typer

Resume = Annotated[Path | None, typer.Option(help="Go on with the run in this directory.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the run in --out, if there is one.")
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file; flags override it.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Any setting of run.yaml, such as optimizer.beta2=0.95."
    ),
]
GradAccum = Annotated[int | None, typer.Option(help="Micro-batches in a step. [1]")]
OptimizerName = Annotated[str | None, typer.Option(help="adamw or muon. [adamw]")]
LrSchedule = Annotated[str | None, typer.Option(help="constant, cosine, linear or wsd. [cosine]")]
Warmup = Annotated[
    int | None, typer.Option(help="Steps of rising learning rate. [3 % of the steps]")
]
Dtype = Annotated[str | None, typer.Option(help="float32 or bfloat16. [float32]")]
Seed = Annotated[int | None, typer.Option(help="Decides everything random. [0]")]
EvalEvery = Annotated[
    int | None, typer.Option(help="Steps between validations. [a tenth of the steps]")
]
SaveEvery = Annotated[int | None, typer.Option(help="Steps between saves. [as --eval-every]")]
