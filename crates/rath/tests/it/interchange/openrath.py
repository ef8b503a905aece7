"""Loads a session file with the Python OpenRath's own code and prints what it understood."""
import sys
import tempfile
from pathlib import Path

from rath.session.chunk import chunk_table_to_messages
from rath.session.persistence import load_session

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "session.jsonl"
    path.write_bytes(sys.stdin.buffer.read())
    loaded = load_session("", path=path)

header = loaded.header
usage = loaded.cumulative_usage
print(header.id, header.lineage_kind.value, len(header.parent_session_ids), header.sandbox_backend, f"closed={loaded.closed}")
user, agent = loaded.to_resumable_pair()
for message in (*chunk_table_to_messages(agent.chunk_table), *chunk_table_to_messages(user.chunk_table)):
    calls = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in message.tool_calls or ()]
    print("   ", message.role, ascii(message.content), *calls, message.tool_call_id or "")
print("   ", (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) if usage else None)
