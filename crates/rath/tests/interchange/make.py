"""Writes the session files beside this one with the Python OpenRath's own code (openrath 2.0.0)."""
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["OPENRATH_HOME"] = tempfile.mkdtemp()

from rath.flow.tool import FlowToolCall
from rath.llm import Provider
from rath.llm.chat_response import (
    RathLLMAssistantMessage,
    RathLLMChatChoice,
    RathLLMChatResponse,
    RathLLMTokenUsage,
    RathLLMToolCallFunction,
    RathLLMToolCallPart,
)
from rath.llm.openai.normalize import parse_tool_arguments
from rath.session import Session, run_session_loop
from rath.session.compress import run_session_compress
from rath.session.persistence import SessionWriter

HERE = Path(__file__).parent


def call(id, name, arguments):
    parsed, error = parse_tool_arguments(arguments)
    function = RathLLMToolCallFunction(
        name=name, arguments=arguments, arguments_parsed=parsed, arguments_parse_error=error
    )
    return RathLLMToolCallPart(id=id, type="function", function=function)


def answer(text=None, calls=None, usage=(0, 0)):
    message = RathLLMAssistantMessage(role="assistant", content=text, tool_calls=tuple(calls) if calls else None)
    choice = RathLLMChatChoice(index=0, finish_reason="tool_calls" if calls else "stop", message=message)
    tokens = RathLLMTokenUsage(prompt_tokens=usage[0], completion_tokens=usage[1], total_tokens=sum(usage))
    return RathLLMChatResponse(id="", choices=(choice,), created=0, model="scripted", usage=tokens)


class Script:
    def __init__(self, *turns):
        self.turns = list(turns)

    def complete(self, request):
        turn = self.turns.pop(0)
        if isinstance(turn, BaseException):
            raise turn
        return turn

    def dispatch_tool(self, session, tool, arguments):
        return tool(session, arguments)

    def tool_schemas(self):
        return ()


class WordCount(FlowToolCall):
    name = "word_count"
    description = "Count the words in a text."
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}

    def __call__(self, session, arguments):
        return {"words": len(arguments.get("text", "").split())}


class Stop(FlowToolCall):
    name = "stop"
    description = "End the process."
    parameters = {"type": "object", "properties": {}}

    def __call__(self, session, arguments):
        # The rows before are written by another thread.
        time.sleep(1)
        os._exit(0)


def path(name):
    for old in (HERE / name, HERE / (name + ".__partial__")):
        old.unlink(missing_ok=True)
    return HERE / name


def run(name, user, agent, *turns):
    provider = Provider(model="scripted", api_key="none")
    return run_session_loop(
        user,
        agent,
        agent_provider=provider,
        executor=Script(*turns),
        tools=[WordCount(), Stop()],
        persist_path=path(name),
        lazy=False,
    )


def save(name, session):
    with SessionWriter(session, path=path(name)) as writer:
        for index, row in enumerate(session.chunk_table.rows):
            writer.write_chunk(index, row)


agent = Session.from_agent_prompt("You count words.")
if sys.argv[1:] == ["crash"]:
    calls = [call("call_1", "word_count", '{"text": "a"}'), call("call_2", "stop", "{}")]
    run("crashed.jsonl", Session.from_user_message("stop"), agent, answer("Stopping.", calls, (10, 2)))
chat = run("chat.jsonl", Session.from_user_message("hello"), agent, answer("hi", usage=(12, 3)))
run(
    "tools.jsonl",
    Session.from_user_message("How many words are in `to be or not`, and in nothing?"),
    agent,
    answer(
        "Let me count.",
        [call("call_1", "word_count", '{"text": "to be or not"}'), call("call_2", "word_count", "")],
        (20, 9),
    ),
    answer(None, [call("call_3", "no_such_tool", "{}")], (40, 5)),
    answer("Four, and none.", usage=(60, 4)),
)
save("fork.jsonl", chat.fork())
run("separators.jsonl", Session.from_user_message("one\u2028two\u2029three\x85four"), agent, answer("\u2028", usage=(5, 1)))
run_session_compress(
    chat,
    agent,
    agent_provider=Provider(model="scripted", api_key="none"),
    executor=Script(answer("They said hello.", usage=(30, 6))),
    persist_path=path("compressed.jsonl"),
)
save("system.jsonl", agent.merge(Session.from_user_message("hello")))
subprocess.run([sys.executable, __file__, "crash"], check=True, timeout=60)
(HERE / "crashed.jsonl.__partial__").rename(HERE / "crashed.jsonl")
