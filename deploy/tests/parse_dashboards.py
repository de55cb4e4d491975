"""Reads dashboards into Grafana's own types and back: parse_dashboards.py FILE... Whatever gets lost, Grafana ignores."""

import json
import pathlib
import sys

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard


def differences(ours, theirs, place):
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from differences(value, theirs.get(key), f"{place}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, value in enumerate(ours):
            yield from differences(value, theirs[index], f"{place}[{index}]")
    elif ours != theirs:
        yield f"{place}: {ours!r} became {theirs!r}"


plugins.register_default_plugins()
for file in sys.argv[1:]:
    ours = json.loads(pathlib.Path(file).read_text())
    theirs = json.loads(JSONEncoder().encode(Dashboard.from_json(ours)))
    lost = list(differences(ours, theirs, file))
    if lost:
        sys.exit("\n".join(lost))
