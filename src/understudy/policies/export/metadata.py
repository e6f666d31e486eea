"""Where a policy comes from: the part of a run's configuration that an exported file carries."""

from pathlib import Path
from typing import Any

from understudy.core.reader import FileReader
from understudy.core.text import is_line, quoted
from understudy.deploy.runs import POLICY, REMEDY, run_config

LONGEST_COMMAND = 2000
CARD = "card.json"
CARD_PATTERN = {
    "env?": (None, is_line),
    "command": str,
    "versions?": {str: is_line},
    "return": {"mean": (None, float), "std": (None, float), "episodes": int},
}
"""The pattern of an expert's card: what is read of it."""


def training_at(path: Path, file: Path) -> dict[str, Any]:
    """The metadata of a policy file: from the run directory or the expert directory `path`, if it is one."""
    if path.is_dir() and not (path / POLICY).is_file():
        return training_of(run_config(path), file.stem)
    if (path / CARD).is_file():
        card = FileReader(path / CARD, "the card of an expert", REMEDY).json(CARD_PATTERN)
        return {
            "command": quoted(card["command"], LONGEST_COMMAND),
            "versions": card.get("versions", {}),
            "return": {name: card["return"][name] for name in ("mean", "std", "episodes")},
        }
    return {}


def training_of(config: dict[str, Any], policy: str) -> dict[str, Any]:
    """The metadata of one policy of a run, from the run's config.json (`deploy.runs.run_config`)."""
    algorithm, data = config["algorithm"], config["demonstrations"]
    digest = data.get("digest")
    return {
        "policy": policy,
        "algorithm": {"name": algorithm["name"], "preset": algorithm["preset"], "title": algorithm["card"]["title"]},
        "demonstrations": {
            "digest": digest if is_line(digest) else None,
            "env": data["env"],
            "expert_return": data["expert_return"],
        },
        "env": config.get("env"),
        "command": quoted(config["command"], LONGEST_COMMAND),
        "versions": config["versions"],
    }
