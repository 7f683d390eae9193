"""The same server in every form that people paste: text in pieces, each of which knows which key it sets.

Booleans are `true` and `false` in JSON and YAML, `True` and `False` in Python. bash takes the JSON in single quotes.
PowerShell before 7.3 strips double quotes off what it hands to a program, so there each key of the JSON is a flag of
its own, which vLLM joins again (`FlexibleArgumentParser` in vllm/utils/argparse_utils.py).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from spec_viz.serving.config.choice import Case
from spec_viz.serving.config.tables import INSIDE, KEYS, VERSIONS

PORT = 8000
SAID = "Name the days of the week, twice."
# What `LLM(...)` does not take: they belong to the server around it.
_HTTP = ("host", "port", "served_model_name", "enable_per_request_metrics", "enable_force_include_usage")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a form's text, and the key that it sets; None where it only holds others together."""

    text: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """One form: its name and its text in pieces."""

    name: str
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """What is copied."""
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Setup:
    """What a checked case comes to: the JSON, the flags around it, the environment, and a request."""

    version: str
    target: str
    speculative: Mapping[str, Any] | None
    flags: Mapping[str, Any]
    environment: Mapping[str, str]
    request: Mapping[str, Any]


def setup(case: Case) -> Setup:
    """The values of a case, sorted to where they are set. What its method does not read is not written."""
    method, values = case.method, case.values
    if method is None:
        raise ValueError(f"{case.choice.method} is no method")
    by_place: dict[str, dict[str, Any]] = {"speculative": {}, "server": {}, "environment": {}, "request": {}}
    for name, key in KEYS.items():
        if name in values and (not key.methods or method.name in key.methods):
            by_place[key.place][key.bare] = values[name]
    speculative = None
    if method.vllm is not None:
        drafter = {"model": case.choice.drafter} if case.choice.drafter and method.drafter != "none" else {}
        speculative = {"method": method.vllm, **drafter, **by_place["speculative"], **method.keys}
    return Setup(
        VERSIONS[case.choice.version].exact,
        case.choice.target,
        speculative,
        by_place["server"],
        by_place["environment"],
        _request(case, by_place["request"]),
    )


def _request(case: Case, asked: Mapping[str, Any]) -> dict[str, Any]:
    """A chat turn that shows what the server counts, without what it would refuse."""
    body: dict[str, Any] = {
        "model": str(case.values.get("served_model_name") or case.choice.target),
        "messages": [{"role": "user", "content": SAID}],
    }
    for name, value in asked.items():
        if name == "include_usage" or (case.speculates and name in ("min_p", "logit_bias")):
            continue
        body[name] = value
    if asked.get("stream") and asked.get("include_usage"):
        body["stream_options"] = {"include_usage": True}
    return body


# ---------------------------------------------------------------- parts


def _flags(made: Setup, without: Sequence[str] = ()) -> Iterator[tuple[str, str, str | None]]:
    """(key, flag, value) of everything around the JSON; a switch has no value."""
    for name, value in made.flags.items():
        flag = name.replace("_", "-")
        if name in without:
            continue
        if value is True:
            yield name, f"--{flag}", None
        elif value is False:
            if KEYS[name].usual == "true":
                yield name, f"--no-{flag}", None
        else:
            yield name, f"--{flag}", str(value)


def _written(made: Setup) -> dict[str, Any]:
    """The JSON's keys with the names that explain them: those that a flag shares are told apart."""
    return {_key(name): value for name, value in (made.speculative or {}).items()}


def _key(name: str) -> str:
    if name == "model":
        return "drafter"
    return f"{INSIDE}{name}" if f"{INSIDE}{name}" in KEYS else name


def _bare(key: str) -> str:
    return "model" if key in ("drafter", "served_model_name") else key.removeprefix(INSIDE)


def _json(values: Mapping[str, Any], indent: str, quote: Callable[[str], str] = str) -> Iterator[Piece]:
    """A JSON object, a key a line."""
    yield Piece("{\n")
    last = len(values) - 1
    for place, (key, value) in enumerate(values.items()):
        text = f"{json.dumps(_bare(key))}: {json.dumps(value, ensure_ascii=False)}"
        yield Piece(indent + "  ")
        yield Piece(quote(text), key)
        yield Piece("\n" if place == last else ",\n")
    yield Piece(indent + "}")


def _lines(lines: Iterable[Sequence[Piece]], joint: str) -> tuple[Piece, ...]:
    """Lines of one command, joined by what continues a line there."""
    pieces: list[Piece] = []
    for place, line in enumerate(lines):
        if place:
            pieces.append(Piece(joint))
        pieces.extend(line)
    return (*pieces, Piece("\n"))


def _in_single(text: str) -> str:
    """Text inside bash's single quotes."""
    return text.replace("'", "'\\''")


def _posix(made: Setup, without: Sequence[str] = ()) -> Iterator[list[Piece]]:
    """The flags of a server as lines for a POSIX shell."""
    for key, flag, value in _flags(made, without):
        yield [Piece(flag if value is None else f"{flag} {shlex.quote(value)}", key)]
    if made.speculative is not None:
        inside = _json(_written(made), "  ", _in_single)
        yield [Piece("--speculative-config", "speculative_config"), Piece(" '"), *inside, Piece("'")]


# ---------------------------------------------------------------- vLLM


def bash(made: Setup) -> Form:
    """For a POSIX shell."""
    before = [Piece(f"{name}={shlex.quote(value)}", name) for name, value in made.environment.items()]
    head = [*[part for each in before for part in (each, Piece(" "))], Piece("vllm serve "), _target(made)]
    return Form("bash", _lines([head, *_posix(made)], " \\\n  "))


def _target(made: Setup, quote: Callable[[str], str] = shlex.quote) -> Piece:
    return Piece(quote(made.target), "target")


# PowerShell ends a single-quoted text at any of these.
_POWERSHELL = re.compile("(['\u2018\u2019\u201a\u201b])")


def powershell_quote(text: str) -> str:
    """A single-quoted text: nothing is expanded inside, and its own quotes are doubled. A number needs none."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return text
    return "'" + _POWERSHELL.sub(r"\1\1", text) + "'"


def dotted_value(value: Any) -> str:
    """A value as vLLM reads one behind a dotted flag: JSON where that is what it is, else the text itself."""
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        json.loads(value)
    except ValueError:
        # `8k` would be read as a number.
        return json.dumps(value) if re.fullmatch(r"[\d.]+[kKmMgGtT]?", value) else value
    return json.dumps(value)


def powershell(made: Setup) -> Form:
    """For PowerShell, in Linux or in front of a server elsewhere; vLLM itself does not run on Windows."""
    before = [Piece(f"$env:{name} = {powershell_quote(value)}", name) for name, value in made.environment.items()]
    lines: list[list[Piece]] = [[Piece("vllm serve "), _target(made, powershell_quote)]]
    for key, flag, value in _flags(made):
        lines.append([Piece(flag if value is None else f"{flag} {powershell_quote(value)}", key)])
    for key, value in _written(made).items():
        flag = powershell_quote(f"--speculative-config.{_bare(key)}")
        lines.append([Piece(f"{flag} {powershell_quote(dotted_value(value))}", key)])
    head = [part for each in before for part in (each, Piece("\n"))]
    return Form("powershell", (*head, *_lines(lines, " `\n  ")))


def yaml(made: Setup) -> Form:
    """For `vllm serve --config`."""
    environment = "".join(f"{name}={shlex.quote(value)} " for name, value in made.environment.items())
    pieces = [
        Piece(f"# {environment}vllm serve --config serve.yaml\n"),
        Piece(f"model: {json.dumps(made.target)}", "target"),
    ]
    for name, value in made.flags.items():
        if value is not False or KEYS[name].usual == "true":
            pieces += [Piece("\n"), Piece(f"{name.replace('_', '-')}: {json.dumps(value, ensure_ascii=False)}", name)]
    if made.speculative is not None:
        pieces += [Piece("\n"), Piece("speculative-config:", "speculative_config")]
        for key, value in _written(made).items():
            # JSON is YAML, and leaves no doubt about what is text.
            pieces += [Piece("\n  "), Piece(f"{_bare(key)}: {json.dumps(value, ensure_ascii=False)}", key)]
    return Form("yaml", (*pieces, Piece("\n")))


def python(made: Setup) -> Form:
    """For a program of one's own, without a server."""
    pieces: list[Piece] = []
    if made.environment:
        pieces.append(Piece("import os\n\n"))
        for name, value in made.environment.items():
            pieces += [Piece(f"os.environ[{name!r}] = {value!r}", name), Piece("\n")]
        pieces.append(Piece("\n"))
    pieces += [
        Piece("from vllm import LLM, SamplingParams\n\nllm = LLM(\n    "),
        Piece(f"model={made.target!r}", "target"),
    ]
    flags = {name: value for name, value in made.flags.items() if name not in _HTTP}
    if not flags.get("disable_log_stats"):
        # An LLM counts nothing unless it is told to, and then `llm.get_metrics()` is empty.
        flags["disable_log_stats"] = False
    for name, value in flags.items():
        pieces += [Piece(",\n    "), Piece(f"{name}={value!r}", name)]
    if made.speculative is not None:
        pieces += [Piece(",\n    "), Piece("speculative_config=", "speculative_config"), Piece("{\n")]
        for key, value in _written(made).items():
            pieces += [Piece("        "), Piece(f"{_bare(key)!r}: {value!r}", key), Piece(",\n")]
        pieces.append(Piece("    }"))
    pieces.append(Piece(",\n)\nsampling = SamplingParams("))
    asked = [(name, made.request[name]) for name in ("temperature", "max_tokens", "n") if name in made.request]
    for place, (name, value) in enumerate(asked):
        pieces += [Piece(", " if place else ""), Piece(f"{name}={value!r}", name)]
    pieces.append(Piece(f")\n(answer,) = llm.generate([{SAID!r}], sampling)\nprint(answer.outputs[0].text)\n"))
    return Form("python", tuple(pieces))


def request(made: Setup) -> Form:
    """A question to that server which shows what is told of one answer."""
    port = made.flags.get("port", PORT)
    body = {("served_model_name" if name == "model" else name): value for name, value in made.request.items()}
    data = [Piece("-d '"), *_json(body, "  ", _in_single)]
    lines = [
        [Piece("curl "), Piece(f"http://127.0.0.1:{port}/v1/chat/completions", "port")],
        [Piece("-H 'Content-Type: application/json'")],
        [*data, Piece("'")],
    ]
    return Form("request", _lines(lines, " \\\n  "))


def docker(made: Setup) -> Form:
    """vLLM's own image on NVIDIA's GPUs (vLLM docs, deployment/docker)."""
    devices = [[Piece("--gpus all", "docker_gpus")]]
    return Form("docker", _container(made, devices, f"vllm/vllm-openai:v{made.version}"))


def docker_rocm(made: Setup) -> Form:
    """vLLM's own image on AMD's GPUs (vLLM docs, getting_started/installation, ROCm)."""
    devices = [
        [Piece("--group-add=video", "docker_group")],
        [Piece("--cap-add=SYS_PTRACE --security-opt seccomp=unconfined", "docker_debug")],
        [Piece("--device /dev/kfd --device /dev/dri", "docker_device")],
    ]
    return Form("docker-rocm", _container(made, devices, f"vllm/vllm-openai-rocm:v{made.version}"))


def _container(made: Setup, devices: list[list[Piece]], image: str) -> tuple[Piece, ...]:
    port = made.flags.get("port", PORT)
    lines = [
        [Piece("docker run --rm")],
        *devices,
        [Piece("-v ~/.cache/huggingface:/root/.cache/huggingface", "docker_cache")],
        [Piece('--env "HF_TOKEN=$HF_TOKEN"', "docker_token")],
        *[[Piece(f"--env {name}={shlex.quote(value)}", name)] for name, value in made.environment.items()],
        [Piece(f"-p {port}:{PORT}", "docker_port")],
        [Piece("--ipc=host", "docker_ipc")],
        [Piece(image, "docker_image")],
        [_target(made)],
        # Inside, the server listens where the image has it; the port outside is docker's affair.
        *_posix(made, ("host", "port")),
    ]
    return _lines(lines, " \\\n  ")


# ---------------------------------------------------------------- other servers

SGLANG = "SGLang docs, advanced_features/speculative_decoding"
TENSORRT = "TensorRT-LLM docs, features/speculative-decoding"
# Only what their docs spell out: the algorithm, and for chains one child a step.
_SGLANG: Mapping[str, str] = MappingProxyType(
    {"draft_model": "STANDALONE", "eagle": "EAGLE", "eagle3": "EAGLE3", "mtp": "EAGLE", "dflash": "DFLASH"}
)
_TENSORRT: Mapping[str, str] = MappingProxyType(
    {
        "ngram": "NGram",
        "draft_model": "DraftTarget",
        "pard": "PARD",
        "eagle3": "Eagle3",
        "dflash": "DFlash",
    }
)


def _plain(case: Case) -> bool:
    """Whether only what other servers have too was asked of the drafting."""
    speaks = {"num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max"}
    return all(name in speaks for name in case.values if KEYS[name].place == "speculative")


def sglang(case: Case, made: Setup) -> Form | None:
    """SGLang's launcher, for the methods that its docs map; None for the others."""
    algorithm = _SGLANG.get(case.name)
    if (case.speculates and algorithm is None) or not _plain(case):
        return None
    lines = [[Piece("python3 -m sglang.launch_server")], [Piece(f"--model-path {shlex.quote(made.target)}", "target")]]
    if algorithm:
        lines.append([Piece(f"--speculative-algorithm {algorithm}", "sglang_algorithm")])
        if case.choice.drafter and case.name != "mtp":
            draft = f"--speculative-draft-model-path {shlex.quote(case.choice.drafter)}"
            lines.append([Piece(draft, "drafter")])
        if algorithm != "DFLASH":
            lines += [
                [Piece(f"--speculative-num-steps {case.gamma}", "num_speculative_tokens")],
                [Piece("--speculative-eagle-topk 1", "sglang_topk")],
                [Piece(f"--speculative-num-draft-tokens {case.gamma + 1}", "sglang_draft_tokens")],
            ]
    return Form("sglang", _lines(lines, " \\\n  "))


def tensorrt(case: Case, made: Setup) -> Form | None:
    """TensorRT-LLM's YAML, for the methods that its docs map; None for the others."""
    kind = _TENSORRT.get(case.name)
    if (case.speculates and kind is None) or not _plain(case):
        return None
    if kind is None:
        return Form("tensorrt-llm", (Piece("trtllm-serve "), _target(made), Piece("\n")))
    pieces = [
        Piece(f"# trtllm-serve {shlex.quote(made.target)} --config trtllm.yaml", "target"),
        Piece("\n"),
        Piece("speculative_config:", "speculative_config"),
        Piece("\n  "),
        Piece(f"decoding_type: {kind}", "tensorrt_type"),
        Piece("\n  "),
        Piece(f"max_draft_len: {case.gamma}", "num_speculative_tokens"),
    ]
    if kind == "NGram" and "prompt_lookup_max" in case.values:
        size = case.values["prompt_lookup_max"]
        pieces += [Piece("\n  "), Piece(f"max_matching_ngram_size: {size}", "prompt_lookup_max")]
    if case.choice.drafter:
        pieces += [Piece("\n  "), Piece(f"speculative_model: {json.dumps(case.choice.drafter)}", "drafter")]
    return Form("tensorrt-llm", (*pieces, Piece("\n")))


_VLLM: tuple[Callable[[Setup], Form], ...] = (bash, powershell, yaml, python)


def forms(case: Case) -> tuple[Form, ...]:
    """Every form that the case's machine can take, vLLM's first."""
    made = setup(case)
    container = {"nvidia": docker, "amd": docker_rocm}.get(case.machine.maker)
    own = [*_VLLM, *([container] if container else []), request]
    others = (sglang(case, made), tensorrt(case, made)) if case.machine.maker == "nvidia" else ()
    return (*(write(made) for write in own), *(form for form in others if form))
