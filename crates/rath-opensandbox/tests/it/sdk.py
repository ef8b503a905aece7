"""Uses a server through the official SDK: what it does on a server that stands in for OpenSandbox has to work as on a real one."""

import asyncio
import sys
from datetime import timedelta

from opensandbox import Sandbox
from opensandbox.config import ConnectionConfig
from opensandbox.models.filesystem import WriteEntry


async def main(domain, key):
    config = ConnectionConfig(domain=domain, api_key=key, protocol="http")
    sandbox = await Sandbox.create(
        "debian:13",
        connection_config=config,
        timeout=timedelta(minutes=5),
        entrypoint=["tail", "-f", "/dev/null"],
        env={"GREETING": "hi"},
        metadata={"made-by": "sdk"},
    )
    home = (await sandbox.commands.run("pwd")).logs.stdout[0].text.strip()

    ran = await sandbox.commands.run("echo $GREETING; echo err >&2")
    assert [line.text.strip() for line in ran.logs.stdout] == ["hi"], ran
    assert [line.text.strip() for line in ran.logs.stderr] == ["err"], ran
    failed = await sandbox.commands.run("exit 3")
    assert failed.error is not None and failed.error.value == "3", failed

    path = f"{home}/d/a.txt"
    await sandbox.files.write_files([WriteEntry(path=path, data="one\ntwo\n", mode=644)])
    assert await sandbox.files.read_file(path) == "one\ntwo\n"
    info = await sandbox.files.get_file_info([path])
    assert info[path].size == 8 and info[path].mode == 644, info
    await sandbox.files.delete_files([path])

    described = await sandbox.get_info()
    assert described.metadata == {"made-by": "sdk"} and described.status.state == "Running", described
    await sandbox.renew(timedelta(minutes=10))
    await sandbox.pause()
    sandbox = await Sandbox.resume(sandbox.id, connection_config=config)
    assert (await sandbox.commands.run("echo back")).logs.stdout[0].text.strip() == "back"
    await sandbox.kill()
    print("the SDK is content")


asyncio.run(main(*sys.argv[1:]))
