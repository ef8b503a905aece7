"""Asks a server about sessions with the official client, and prints each answer as a line of JSON."""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters


def texts(result):
    return [block.text for block in result.content]


async def main(mode, command, *args):
    server = StdioServerParameters(command=command, args=list(args))
    async with Client(server, mode=mode) as client:
        print(json.dumps(client.protocol_version))
        tools = await client.list_tools()
        print(json.dumps([tool.name for tool in tools.tools]))
        header, text = texts(await client.call_tool("list_sessions", {}))
        assert json.loads(header)["bytes"] == len(text.encode()), header
        print(json.dumps(text))
        wrong = await client.call_tool("read_session", {"session": "ffffffff"})
        assert wrong.is_error, wrong
        print(json.dumps(texts(wrong)[0]))
        pages, arguments = "", {"max_bytes": 3000}
        while True:
            header, text = texts(await client.call_tool("request_as_sent", arguments))
            pages += text
            cursor = json.loads(header).get("next_cursor")
            if cursor is None:
                break
            arguments["cursor"] = cursor
        print(json.dumps(pages))


asyncio.run(main(*sys.argv[1:]))
