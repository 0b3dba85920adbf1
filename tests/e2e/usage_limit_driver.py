"""Run inside a network namespace of its own: a run that meets a usage limit, and what came of it as JSON."""

import json
import sys
from pathlib import Path

from e2e.kit import Stage, finished
from e2e.trouble_kit import UsedUpModel
from untildone.rehearsal.environment import as_subscriber
from untildone.rehearsal.scenario import Reply, Scenario


def main(tmp: Path, seconds: float, *args: str) -> None:
    """Play it; `args` go to `untildone run`."""
    script = Scenario(name="limit", replies=(Reply(text=finished()),))
    with UsedUpModel(script, seconds=seconds, refusal=Reply()) as model:
        stage = Stage(tmp, model)
        stage.env = as_subscriber(stage.env)
        result = stage.result_here("run", "survive the limit", "-m", "5", "--check", "true", "--sandbox", "host", *args)
        print(json.dumps({
            "result": result, "refused": model.refused, "over": model.over, "answered": model.answered,
            "events": stage.events(result["run_id"]),
            "models": [request.body["model"] for request in model.requests],
        }))  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:])
