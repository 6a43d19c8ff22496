"""Drives `toolcell mcp serve` with the official Python SDK, over stdio and HTTP, in both forms of the handshake.

Arguments: URL of the server over HTTP, then the command that starts one over stdio.
"""

import asyncio
import os
import sys

from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client


async def check(server, mode):
    async with Client(server, mode=mode) as client:
        tools = (await client.list_tools()).tools
        assert any(tool.name == "test_simple_text" for tool in tools)

        text = await client.call_tool("test_simple_text", {})
        assert text.content[0].text == "This is a simple text response for testing."
        assert text.meta["io.github.toolcell/receipt"]["fuel"] > 0
        image = await client.call_tool("test_image_content", {})
        assert image.content[0].mime_type == "image/png"

        assert (await client.call_tool("test_error_handling", {})).is_error
        assert (await client.call_tool("test_x_mcp_header", {"region": 7})).is_error
        try:
            await client.call_tool("no_such_tool", {})
        except MCPError as error:
            assert "no_such_tool" in str(error)
        else:
            raise AssertionError("an unknown tool is an error of the protocol")

        steps = []

        async def progress(done, total, message):
            steps.append(done)

        await client.call_tool("test_tool_with_progress", {}, progress_callback=progress)
        assert steps == [0, 50, 100], steps

        calls = (client.call_tool("test_x_mcp_header", {"region": f"r{index}"}) for index in range(64))
        for index, result in enumerate(await asyncio.gather(*calls)):
            assert result.content[0].text == f"The region is r{index}."


async def main():
    url, command, *args = sys.argv[1:]
    parameters = StdioServerParameters(command=command, args=args, env=dict(os.environ))
    for mode in ("legacy", "auto"):
        await check(url, mode)
        print(f"mcp clients: Python SDK, HTTP, {mode}: passed")
        with open(os.devnull, "w") as nowhere:
            await check(stdio_client(parameters, errlog=nowhere), mode)
        print(f"mcp clients: Python SDK, stdio, {mode}: passed")


asyncio.run(main())
