"""Reads an exported graph with the Python OpenRath's own functions and prints what it understood."""
import json
import sys
from types import SimpleNamespace
from uuid import UUID

from rath.session.graph.traverse import ancestors_bfs, validate_acyclic
from rath.session.persistence._serialize import (
    coerce_lineage_kind,
    lineage_extras_from_jsonable,
    parse_uuid_list,
    usage_from_jsonable,
)

sessions = {}
for line in sys.stdin:
    row = json.loads(line)
    sessions[UUID(row["id"])] = SimpleNamespace(
        id=UUID(row["id"]),
        parent_session_ids=tuple(parse_uuid_list(row["parent_session_ids"])),
        kind=coerce_lineage_kind(row["lineage_kind"]).value,
        extras=[key for key, _ in lineage_extras_from_jsonable(row["lineage_extras"])],
        usage=usage_from_jsonable(row["cumulative_usage"]),
        chunks=row["chunk_count"],
    )
validate_acyclic(sessions)
for session in sessions.values():
    tokens = session.usage.total_tokens if session.usage else None
    print(session.kind, session.chunks, tokens, len(ancestors_bfs(sessions, session.id)), session.extras)
