"""The config builder against the real thing: vLLM 0.32.0's own `SpeculativeConfig` takes and refuses what ours does.

Drafters are folders with nothing but a `config.json`, which is all that vLLM reads before weights. Where no vLLM is
installed (`python -m spec_viz serve-local install`) every test here is skipped, and says so.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spec_viz.serving.config.builder import Built, begin, build
from spec_viz.serving.config.choice import Choice
from spec_viz.serving.config.tables import METHODS
from spec_viz.serving.local import program

pytestmark = pytest.mark.server

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "vocab_size": 512,
    "torch_dtype": "float32",
}
# A target with an MTP layer of its own, of a kind that transformers knows without its author's code.
GLM = LLAMA | {"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "num_nextn_predict_layers": 1}
FOLDERS: dict[str, dict[str, Any]] = {
    "target": LLAMA,
    "layered": GLM,
    "draft_model": LLAMA,
    "pard": LLAMA | {"pard_token": 3},
    "medusa": {"model_type": "medusa", "hidden_size": 64, "vocab_size": 512, "num_heads": 3, "num_hidden_layers": 1},
    "eagle": LLAMA | {"num_hidden_layers": 1},
    "eagle3": LLAMA | {"num_hidden_layers": 1, "draft_vocab_size": 128},
    "p_eagle": LLAMA | {"num_hidden_layers": 1, "draft_vocab_size": 128, "ptd_token_id": 3},
    "dflash": LLAMA | {"model_type": "qwen3", "architectures": ["DFlashDraftModel"], "head_dim": 16, "block_size": 16},
    "dspark": LLAMA | {"model_type": "qwen3", "architectures": ["Qwen3DSparkModel"], "head_dim": 16, "block_size": 7},
    "other": LLAMA | {"vocab_size": 256},
}

# Runs in vLLM's environment: one line of JSON in for all cases, one out. Suffix decoding asks for a package that is
# not installed there; that it does is what rule 20 says, so here its presence is pretended.
PROBE = """
import json, sys
import vllm.config.speculative as module
from vllm.config import ModelConfig, ParallelConfig
module.has_arctic_inference = lambda: True
asked, targets, answers = json.load(sys.stdin), {}, []
for case in asked:
    try:
        if case["target"] not in targets:
            targets[case["target"]] = ModelConfig(model=case["target"], dtype="float32", skip_tokenizer_init=True)
        parallel = ParallelConfig(tensor_parallel_size=case["size"])
        config = module.SpeculativeConfig(
            **case["config"], target_model_config=targets[case["target"]], target_parallel_config=parallel
        )
        answers.append({"method": config.method, "gamma": config.num_speculative_tokens})
    except Exception as problem:
        answers.append({"error": f"{type(problem).__name__}: {problem}"[:600]})
json.dump(answers, open(sys.argv[1], "w"))
"""


def python() -> Path | None:
    vllm = program()
    return vllm.parent / "python" if vllm else None


MISSING = "NOT COMPARED WITH VLLM: no environment; `python -m spec_viz serve-local install` builds one"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("configs")
    for name, body in FOLDERS.items():
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(body), encoding="utf-8")
    return {name: root / name for name in FOLDERS}


def ask(cases: list[dict[str, Any]], scratch: Path) -> list[dict[str, Any]]:
    """What vLLM's config class says of each case."""
    interpreter = python()
    if interpreter is None:
        pytest.skip(MISSING)
    offline = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [str(interpreter), "-c", PROBE, str(scratch / "answers.json")],
        input=json.dumps(cases),
        text=True,
        capture_output=True,
        env=os.environ | offline,
        timeout=500,
        cwd=scratch,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    answers: list[dict[str, Any]] = json.loads((scratch / "answers.json").read_text(encoding="utf-8"))
    return answers


def made(method: str, folders: Mapping[str, Path], /, *, drafter: str = "", **options: str) -> Built:
    """Our answer for a method with the folders as its models."""
    target = str(folders["layered" if method == "mtp" else "target"])
    draft = str(folders[drafter or method]) if METHODS[method].drafter != "none" else ""
    return build(Choice(method, target, draft, options))


# No folder here plays Gemma 4: its config wants the vision half and a checkpoint whose layers share the target's cache.
TRIED = [name for name in METHODS if name not in ("baseline", "gemma4_mtp")]
OPTIONS: dict[str, list[dict[str, str]]] = {
    name: [
        {},
        {"num_speculative_tokens": "2", "rejection_sample_method": "synthetic", "synthetic_acceptance_length": "2.4"},
        {
            "num_speculative_tokens": "2",
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_rates": "[0.9,0.5]",
        },
    ]
    for name in TRIED
}
for _name in ("eagle", "eagle3", "dflash", "dspark"):
    OPTIONS[_name].append({"rejection_sample_method": "block", "draft_sample_method": "probabilistic"})
for _name in ("ngram", "eagle", "eagle3", "dflash", "draft_model"):
    OPTIONS[_name].append({"num_speculative_tokens_per_batch_size": "[[1,4,2],[5,9,0]]"})
OPTIONS["draft_model"].append({"use_heterogeneous_vocab": "true"})
OPTIONS["suffix"] += [{"num_speculative_tokens": ""}, {"suffix_decoding_min_token_prob": "0.5"}]
OPTIONS["dspark"].append({"enable_adaptive_verification": "true"})
OPTIONS["dspark"].append({"num_speculative_tokens": ""})


def test_what_is_written_is_taken(folders: dict[str, Path], tmp_path: Path) -> None:
    built = [made(name, folders, **options) for name in TRIED for options in OPTIONS[name]]
    assert [each.findings for each in built if each.refused] == []
    cases = [{"config": each.speculative, "target": each.choice.target, "size": 1} for each in built]
    answers = ask(cases, tmp_path)
    refused = [
        (each.method, each.choice.options, said) for each, said in zip(built, answers, strict=True) if "error" in said
    ]
    assert refused == []
    for each, said in zip(built, answers, strict=True):
        assert each.speculative
        assert said["method"] == each.speculative["method"]
        assert each.method == "dspark" or said["gamma"] == each.values.get("num_speculative_tokens", 24)


# What we refuse and vLLM refuses too: our method, options, a raw change of the JSON, GPUs.
REFUSED: list[tuple[str, dict[str, str], dict[str, Any], int]] = [
    ("eagle3", {"num_speculative_tokens": ""}, {"num_speculative_tokens": None}, 1),
    ("ngram", {"num_speculative_tokens": "0"}, {"num_speculative_tokens": 0}, 1),
    ("ngram", {"prompt_lookup_min": "6"}, {"prompt_lookup_min": 6}, 1),
    ("eagle3", {"use_heterogeneous_vocab": "true"}, {"use_heterogeneous_vocab": True}, 1),
    (
        "draft_model",
        {"use_heterogeneous_vocab": "true", "draft_sample_method": "probabilistic"},
        {"use_heterogeneous_vocab": True, "draft_sample_method": "probabilistic"},
        1,
    ),
    ("eagle3", {"speculative_config.tensor_parallel_size": "1"}, {"tensor_parallel_size": 1}, 1),
    (
        "eagle3",
        {"tensor_parallel_size": "2", "draft_tensor_parallel_size": "3"},
        {"draft_tensor_parallel_size": 3},
        2,
    ),
    ("eagle3", {"rejection_sample_method": "synthetic"}, {"rejection_sample_method": "synthetic"}, 1),
    ("eagle3", {"synthetic_acceptance_length": "2"}, {"synthetic_acceptance_length": 2}, 1),
    (
        "eagle3",
        {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": "[0.5,0.6,0.7]"},
        {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.5, 0.6, 0.7]},
        1,
    ),
    (
        "eagle3",
        {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": "9"},
        {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 9},
        1,
    ),
    ("eagle", {"dspark_draft_topk": "4"}, {"dspark_draft_topk": 4}, 1),
    ("eagle", {"index_share_for_mtp_iteration": "true"}, {"index_share_for_mtp_iteration": True}, 1),
    ("eagle", {"speculative_token_tree": "[]"}, {"speculative_token_tree": "[]"}, 1),
    ("ngram", {"prompt_lookup_maxx": "4"}, {"prompt_lookup_maxx": 4}, 1),
    ("ngram", {"rejection_sample_method": "fly"}, {"rejection_sample_method": "fly"}, 1),
    ("suffix", {"suffix_decoding_min_token_prob": "2"}, {"suffix_decoding_min_token_prob": 2.0}, 1),
]
# What we refuse and this class takes: it is ignored, or refused later, as each says.
LATER: list[tuple[str, dict[str, str], dict[str, Any], str]] = [
    ("ngram", {"parallel_drafting": "true"}, {"parallel_drafting": True}, "no n-gram proposer reads it"),
    ("suffix", {"rejection_sample_method": "block"}, {"rejection_sample_method": "block"}, "V1 judges as standard"),
    (
        "eagle",
        {"enable_adaptive_verification": "true"},
        {"enable_adaptive_verification": True},
        "DSpark's, says its docstring",
    ),
    (
        "medusa",
        {"num_speculative_tokens_per_batch_size": "[[1,4,3]]"},
        {"num_speculative_tokens_per_batch_size": [[1, 4, 3]]},
        "vllm/v1/spec_decode/medusa.py asserts K at the first step",
    ),
    (
        "eagle",
        {"num_speculative_tokens_per_batch_size": "[[2,4,3]]"},
        {"num_speculative_tokens_per_batch_size": [[2, 4, 3]]},
        "validate_and_normalize_dynamic_sd_schedule refuses when the scheduler starts",
    ),
]


def raw(method: str, folders: Mapping[str, Path], change: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON that we would write without the option in question, changed as a person might; None takes a key away."""
    plain = made(method, folders).speculative
    assert plain
    return {name: value for name, value in {**plain, **change}.items() if value is not None}


def test_what_is_refused_is_refused_there_too(folders: dict[str, Path], tmp_path: Path) -> None:
    ours = [made(method, folders, **options) for method, options, _, _ in REFUSED]
    assert [each.choice for each in ours if not each.refused] == []
    cases = [
        {"config": raw(method, folders, change), "target": str(folders["target"]), "size": size}
        for method, _, change, size in REFUSED
    ]
    cases.append(
        {
            "config": raw("draft_model", folders, {"model": str(folders["other"])}),
            "target": str(folders["target"]),
            "size": 1,
        }
    )
    cases.append(
        {"config": {"method": "hydra", "num_speculative_tokens": 3}, "target": str(folders["target"]), "size": 1}
    )
    # A target without layers for MTP, as `own_layers` says it.
    cases.append(
        {"config": {"method": "mtp", "num_speculative_tokens": 1}, "target": str(folders["target"]), "size": 1}
    )
    taken = [
        (case["config"], said) for case, said in zip(cases, ask(cases, tmp_path), strict=True) if "error" not in said
    ]
    assert taken == []


def test_what_only_we_refuse_is_taken_there_and_has_its_reason(folders: dict[str, Path], tmp_path: Path) -> None:
    assert [options for method, options, _, _ in LATER if not made(method, folders, **options).refused] == []
    cases = [
        {"config": raw(method, folders, change), "target": str(folders["target"]), "size": 1}
        for method, _, change, _ in LATER
    ]
    said = ask(cases, tmp_path)
    assert [each for each in said if "error" in each] == []
    assert all(reason for *_, reason in LATER)


def test_names_that_we_rewrite_are_rewritten_there(folders: dict[str, Path], tmp_path: Path) -> None:
    case = {
        "config": {"method": "glm4_moe_mtp", "num_speculative_tokens": 1},
        "target": str(folders["layered"]),
        "size": 1,
    }
    (said,) = ask([case], tmp_path)
    assert said.get("method") == "mtp", said
    assert build(begin("mtp")).speculative == {"method": "mtp", "num_speculative_tokens": 1}
