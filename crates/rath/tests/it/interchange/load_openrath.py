"""Loads session files with the Python OpenRath's own code and prints what was read."""
import sys
from pathlib import Path

from rath.session.chunk import chunk_table_to_messages
from rath.session.persistence import load_session

for path in map(Path, sys.argv[1:]):
    loaded = load_session("", path=path)
    header = loaded.header
    usage = loaded.cumulative_usage
    parents = len(header.parent_session_ids)
    print(path.name, header.lineage_kind.value, parents, header.sandbox_backend, f"closed={loaded.closed}")
    user, agent = loaded.to_resumable_pair()
    for message in (*chunk_table_to_messages(agent.chunk_table), *chunk_table_to_messages(user.chunk_table)):
        functions = [(call["id"], call["function"]) for call in message.tool_calls or ()]
        calls = [(id, function["name"], function["arguments"]) for id, function in functions]
        print("   ", message.role, ascii(message.content)[:70], *calls, message.tool_call_id or "")
    print("   ", (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) if usage else None)
