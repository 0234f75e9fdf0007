"""llama.cpp (the xllamacpp package) as an oracle: ids of a text, greedy ids, log-probabilities."""

import contextlib
import http.client
import json
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class LlamaCpp:
    """One open model. It listens on a socket in a folder of its own, not on a port."""

    def __init__(self, model: Path, folder: str, context: int) -> None:
        xllamacpp = pytest.importorskip("xllamacpp")
        params = xllamacpp.CommonParams()
        params.model.path = str(model)
        self._socket = str(Path(folder, "s.sock"))
        params.hostnames = [self._socket]
        params.n_ctx = context
        params.n_parallel = 1
        params.warmup = False
        params.verbosity = 0
        params.cpuparams.n_threads = 1
        params.n_threads_http = 1
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.fit_params = False
        self._server = xllamacpp.Server(params)
        self.greedy([0], 1)  # until its loop runs it cannot be closed: it would wait for ever
        self.greedy([0], 1)  # its loop has begun now; closed before that, it never ends

    def close(self) -> None:
        self._server = None

    def ids(self, text: str, *, special: bool = True, borders: bool = False) -> list[int]:
        """Return the ids of a text; `special`: literals of control tokens act."""
        question = {"content": text, "parse_special": special, "add_special": borders}
        return self._ask("/tokenize", question)["tokens"]

    def text(self, ids: list[int]) -> str:
        """Return the text of ids."""
        return self._ask("/detokenize", {"tokens": ids})["content"]

    def greedy(self, ids: list[int], count: int) -> list[int]:
        """Return the likeliest ids behind `ids`, up to the end of the text."""
        return self._complete(ids, count)["tokens"]

    def likeliest(self, ids: list[int], count: int) -> dict[int, float]:
        """Return the `count` likeliest next ids with the logarithms of their probabilities."""
        found = self._complete(ids, 1, n_probs=count)["completion_probabilities"]
        return {entry["id"]: entry["logprob"] for entry in found[0]["top_logprobs"]}

    def _complete(self, ids: list[int], count: int, **more: Any) -> dict[str, Any]:
        question = {"prompt": ids, "n_predict": count, "temperature": 0, "return_tokens": True}
        return self._ask("/completion", question | {"cache_prompt": False} | more)

    def _ask(self, where: str, question: dict[str, Any]) -> Any:
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self._socket)
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/json"}
            connection.request("POST", where, json.dumps(question), headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        assert response.status == 200, answer
        return answer


@contextlib.contextmanager
def opened(model: Path, context: int = 256) -> Iterator[LlamaCpp]:
    """Open a GGUF file. The folder of the socket has a short name, as sockets need it."""
    folder = tempfile.mkdtemp(prefix="llama")
    try:
        llama = LlamaCpp(model, folder, context)
        yield llama
        llama.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
