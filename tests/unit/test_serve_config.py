"""The config builder: every rule both ways, every form read back as its program reads it, and what a page may ask."""

from __future__ import annotations

import ast
import json
import re
import shlex
from typing import Any

import pytest
import yaml

from spec_viz.cli import main
from spec_viz.serving.config.builder import Built, begin, build
from spec_viz.serving.config.choice import Choice, Finding, apply
from spec_viz.serving.config.forms import dotted_value, powershell_quote
from spec_viz.serving.config.pairs import PAIRS
from spec_viz.serving.config.tables import HARDWARE, KEYS, METHODS, VERSIONS, Key
from spec_viz.serving.local import TELLS_STEPS
from spec_viz.ui.serve import choice_of, serve
from spec_viz.ui.wording import words

LLAMA3 = "meta-llama/Meta-Llama-3-8B-Instruct"


def made(method: str, /, *, hardware: str = "nvidia-24", version: str = "0.32", **fields: Any) -> Built:
    """A built choice: known models for the method, and options by name."""
    models = {name: fields.pop(name) for name in ("target", "drafter") if name in fields}
    options = {name.replace("__", "."): str(value) for name, value in fields.pop("more", fields).items()}
    start = begin(method, hardware=hardware, version=version)
    target = models.get("target", start.target)
    drafter = models.get("drafter", start.drafter)
    return build(Choice(method, target, drafter, options, version, hardware))


def said(built: Built, rule: int) -> list[tuple[str, str]]:
    return [(finding.severity, finding.name) for finding in built.findings if finding.rule == rule]


def test_a_server_that_is_started_as_built_tells_connect_every_step() -> None:
    for method in METHODS:
        told = shlex.split(form_of(build(begin(method)), "bash"))
        flag, value = TELLS_STEPS.split()
        # Plain decoding has no steps, and vLLM does not start with the flag there.
        assert (flag in told) == (method != "baseline"), method
        assert flag not in told or told[told.index(flag) + 1] == value
        # The page's own summary of steps needs no other flag (vllm/entrypoints/generate/base/serving.py of 0.32.0).
        alone = made(method, enable_per_request_metrics="")
        assert not said(alone, 17)


SCHEDULE = "num_speculative_tokens_per_batch_size"
# rule, what breaks it, how grave and in which words, and the neighbour that keeps it.
CASES: list[tuple[int, Built, tuple[str, str], Built]] = [
    (1, made("qwen3_next_mtp"), ("note", "alias"), made("mtp")),
    (2, made("eagle2", target="x", drafter="y"), ("note", "eagle2"), made("eagle")),
    (2, made("peagle", target="x", drafter="y"), ("note", "called"), made("p_eagle")),
    (3, made("mlp_speculator"), ("refuse", "mlp_speculator"), made("ngram")),
    (3, made("hydra"), ("refuse", "no_method"), made("medusa")),
    (4, made("eagle3", num_speculative_tokens=""), ("refuse", "no_length"), made("suffix", num_speculative_tokens="")),
    (5, made("dflash", num_speculative_tokens=16), ("warn", "block_dflash"), made("dflash")),
    (5, made("dspark", num_speculative_tokens=6), ("warn", "block_dspark"), made("dspark")),
    (5, made("dflash", drafter="me/own"), ("note", "block_unknown_dflash"), made("dflash", drafter="me/own-b16")),
    (6, made("ngram", prompt_lookup_min=6), ("refuse", "window"), made("ngram", prompt_lookup_min=5)),
    (6, made("ngram", prompt_lookup_min=""), ("warn", "window_one"), made("ngram")),
    (7, made("eagle", parallel_drafting="true"), ("refuse", "parallel"), made("eagle3", parallel_drafting="true")),
    (7, made("dflash", parallel_drafting="true"), ("note", "parallel_own"), made("pard")),
    (
        8,
        made("suffix", rejection_sample_method="block"),
        ("refuse", "block_first"),
        made("eagle3", rejection_sample_method="block", draft_sample_method="probabilistic"),
    ),
    (8, made("p_eagle", rejection_sample_method="block"), ("refuse", "block_first"), made("p_eagle")),
    (8, made("eagle3", rejection_sample_method="block"), ("warn", "block_greedy"), made("eagle3")),
    (8, made("ngram", rejection_sample_method="block"), ("warn", "block_one_hot"), made("ngram")),
    (
        8,
        made("eagle3", rejection_sample_method="block", VLLM_USE_V2_MODEL_RUNNER="0"),
        ("refuse", "block_forced"),
        made("eagle3", rejection_sample_method="standard", VLLM_USE_V2_MODEL_RUNNER="0"),
    ),
    (8, made("eagle3", hardware="cpu", rejection_sample_method="block"), ("refuse", "block_cpu"), made("eagle3")),
    (9, made("eagle3", rejection_sample_method="synthetic"), ("refuse", "synthetic_none"), made("eagle3")),
    (9, made("eagle3", synthetic_acceptance_length=2), ("refuse", "synthetic_off"), made("eagle3")),
    (10, made("eagle3", use_heterogeneous_vocab="true"), ("refuse", "heterogeneous_method"), made("eagle3")),
    (
        10,
        made("draft_model", use_heterogeneous_vocab="true", draft_sample_method="probabilistic"),
        ("refuse", "heterogeneous_greedy"),
        made("draft_model", use_heterogeneous_vocab="true"),
    ),
    (
        11,
        made("draft_model", drafter="HuggingFaceTB/SmolLM2-135M-Instruct", use_heterogeneous_vocab="false"),
        ("refuse", "vocabulary"),
        made("draft_model", drafter="HuggingFaceTB/SmolLM2-135M-Instruct"),
    ),
    (
        12,
        made("eagle3", more={"speculative_config.tensor_parallel_size": "1"}),
        ("refuse", "parallel_inside"),
        made("eagle3", draft_tensor_parallel_size=1),
    ),
    (
        12,
        made("eagle3", tensor_parallel_size=4, draft_tensor_parallel_size=2),
        ("refuse", "parallel_size"),
        made("eagle3", tensor_parallel_size=4, draft_tensor_parallel_size=4),
    ),
    (
        12,
        made("draft_model", tensor_parallel_size=2, draft_tensor_parallel_size=1),
        ("refuse", "parallel_draft_model"),
        made("draft_model", tensor_parallel_size=2, draft_tensor_parallel_size=2),
    ),
    (
        13,
        made("eagle", **{SCHEDULE: "[[2,4,3]]"}),
        ("refuse", "schedule_first"),
        made("eagle", **{SCHEDULE: "[[1,4,3]]"}),
    ),
    (13, made("eagle", **{SCHEDULE: "[[1,4,3],[4,9,1]]"}), ("refuse", "schedule_overlap"), made("eagle")),
    (13, made("eagle", **{SCHEDULE: "[[1,4,5]]"}), ("warn", "schedule_cut"), made("eagle", **{SCHEDULE: "[[1,4,3]]"})),
    (13, made("eagle", **{SCHEDULE: "[[1,4]]"}), ("refuse", "schedule_shape"), made("eagle")),
    (13, made("eagle", **{SCHEDULE: "[[4,1,2]]"}), ("refuse", "schedule_range"), made("eagle")),
    (13, made("medusa", **{SCHEDULE: "[[1,4,3]]"}), ("refuse", "schedule_method"), made("medusa")),
    (
        13,
        made("eagle", data_parallel_size=2, **{SCHEDULE: "[[1,4,3]]"}),
        ("warn", "schedule_parallel"),
        made("eagle", data_parallel_size=1, **{SCHEDULE: "[[1,4,3]]"}),
    ),
    (14, made("eagle3", enable_adaptive_verification="true"), ("refuse", "adaptive_method"), made("eagle3")),
    *(
        (
            14,
            made("dspark", enable_adaptive_verification="true", **{name: value}),
            ("refuse", "adaptive_clash"),
            made("dspark", enable_adaptive_verification="true"),
        )
        for name, value in (
            ("logprobs", "true"),
            ("enable_lora", "true"),
            ("pipeline_parallel_size", "2"),
            ("enforce_eager", "true"),
        )
    ),
    (15, made("dspark", VLLM_USE_V2_MODEL_RUNNER="0"), ("refuse", "runner_second"), made("dspark")),
    (15, made("dspark", hardware="cpu"), ("refuse", "runner_cpu"), made("dspark", hardware="amd-192")),
    # vLLM 0.32.0 has n-gram lookup and draft models on V2 too, unlike earlier ones.
    *(
        (15, made(name, VLLM_USE_V2_MODEL_RUNNER="1"), ("refuse", "runner_first"), made(name))
        for name in ("suffix", "medusa", "pard", "p_eagle")
    ),
    (16, made("ngram", disable_log_stats="true"), ("refuse", "statistics_clash"), made("ngram")),
    (
        16,
        made("ngram", disable_log_stats="true", enable_per_request_metrics=""),
        ("warn", "statistics"),
        made("ngram", disable_log_stats="false"),
    ),
    (17, made("baseline", per_request_spec_decode_metrics="summary"), ("refuse", "metrics_baseline"), made("baseline")),
    (17, made("ngram", n=2), ("warn", "metrics_many"), made("ngram", n=1)),
    (17, made("ngram", stream="true"), ("warn", "metrics_stream"), made("ngram", stream="true", include_usage="true")),
    (18, made("ngram", min_p=0.1), ("note", "request_refused"), made("baseline", min_p=0.1)),
    (18, made("ngram", logit_bias='{"5": 1}'), ("note", "request_refused"), made("ngram")),
    (19, made("ngram", enforce_eager="True"), ("note", "python_flag"), made("ngram", enforce_eager="true")),
    (20, made("suffix"), ("note", "arctic"), made("ngram")),
    (
        21,
        made("draft_model", target="google/gemma-4-E2B-it", drafter="google/gemma-4-E2B-it-assistant"),
        ("refuse", "assistant"),
        made("gemma4_mtp"),
    ),
    (22, made("ngram", prompt_lookup_maxx=3), ("refuse", "unknown"), made("ngram", prompt_lookup_max=3)),
    (22, made("eagle", speculative_token_tree="[]"), ("refuse", "gone"), made("eagle")),
    (
        22,
        made("ngram", rejection_sample_method="fly"),
        ("refuse", "newer"),
        made("ngram", version="0.33", rejection_sample_method="fly"),
    ),
]


def test_there_is_a_case_for_each_of_the_rules() -> None:
    assert {rule for rule, *_ in CASES} == set(range(1, 23))


@pytest.mark.parametrize(("rule", "broken", "expected", "kept"), CASES)
def test_a_rule_speaks_where_it_is_broken_and_only_there(
    rule: int, broken: Built, expected: tuple[str, str], kept: Built
) -> None:
    assert expected in said(broken, rule)
    assert expected not in said(kept, rule)
    assert broken.refused or expected[0] != "refuse"


def found(built: Built, name: str) -> Finding:
    return next(finding for finding in built.findings if finding.name == name)


@pytest.mark.parametrize(("rule", "broken", "expected", "kept"), CASES)
def test_a_fix_takes_its_finding_away_and_refuses_nothing_new(
    rule: int, broken: Built, expected: tuple[str, str], kept: Built
) -> None:
    finding = found(broken, expected[1])
    if finding.fix is None:
        assert expected[0] == "note", "what stands in the way has a fix"
        return
    choice = apply(broken.choice, finding.fix)
    after = build(
        choice if choice.drafter else begin(choice.method, choice.target) if "method" in finding.fix.fields else choice
    )
    before = {each.name for each in broken.findings if each.severity == "refuse"}
    assert finding.name not in {each.name for each in after.findings}
    assert {each.name for each in after.findings if each.severity == "refuse"} <= before - {finding.name} | {
        "no_drafter"
    }


VICUNA = "lmsys/vicuna-7b-v1.3"
# What stands beside the numbered rules: what breaks it, how grave and in which words, and the neighbour that keeps it.
BESIDE: list[tuple[Built, tuple[str, str], Built]] = [
    (made("mtp", target="Qwen/Qwen3-8B"), ("refuse", "own_layers"), made("mtp", target="me/own")),
    (made("dspark", target="meta-llama/Llama-3.1-8B-Instruct", drafter=""), ("refuse", "own_layers"), made("dspark")),
    (
        made("suffix", num_speculative_tokens=129),
        ("refuse", "length_first"),
        made("suffix", num_speculative_tokens=128),
    ),
    (
        made("ngram", hardware="cpu", num_speculative_tokens=129),
        ("refuse", "length_first"),
        made("ngram", num_speculative_tokens=129),
    ),
    (made("ngram_gpu", hardware="cpu"), ("refuse", "lookup_cpu"), made("ngram_gpu", hardware="amd-192")),
    (made("medusa", max_model_len=4096), ("refuse", "context"), made("medusa")),
    (made("ngram", target=VICUNA, max_model_len=2049), ("refuse", "context"), made("ngram", target=VICUNA)),
    (made("ngram", max_num_batched_tokens=15), ("refuse", "batch"), made("ngram", max_num_batched_tokens=16)),
    (made("baseline", n=2), ("warn", "greedy_many"), made("baseline", n=2, temperature=0.5)),
    (made("ngram", max_model_len=128), ("warn", "answer_long"), made("ngram", max_model_len=256)),
]


@pytest.mark.parametrize(("broken", "expected", "kept"), BESIDE)
def test_a_rule_beside_them_speaks_where_it_is_broken_and_its_fix_mends_it(
    broken: Built, expected: tuple[str, str], kept: Built
) -> None:
    assert expected in said(broken, 0)
    assert expected not in said(kept, 0)
    finding = found(broken, expected[1])
    assert finding.fix
    after = build(apply(broken.choice, finding.fix))
    assert expected not in said(after, 0)
    assert not after.refused


def test_no_method_begins_with_more_context_than_its_target_reads() -> None:
    for method in METHODS:
        for target in (pair.target for pair in PAIRS if pair.method == method):
            assert "context" not in {finding.name for finding in build(begin(method, target)).findings}, (
                method,
                target,
            )


@pytest.mark.parametrize("key", [key for key in KEYS.values() if key.high is not None], ids=lambda key: key.name)
def test_a_number_above_its_range_is_told_the_whole_range(key: Key) -> None:
    finding = next(each for each in made("ngram", more={key.name: "99999"}).findings if each.about == key.name)
    sentence = words("en")(f"serve.say.{finding.name}", **finding.args)
    assert f"from {key.low:g} to {key.high:g}" in sentence


@pytest.mark.parametrize(("typed", "sent"), [('{"5": 100}', {"5": 100}), ("x", None), ("[5]", None), ("{}", None)])
def test_logit_bias_is_sent_as_the_object_that_the_protocol_wants(typed: str, sent: Any) -> None:
    built = made("baseline", logit_bias=typed)
    assert built.refused is (sent is None)
    if sent:
        parts = shell_words(form_of(built, "request"))
        assert json.loads(parts[parts.index("-d") + 1])["logit_bias"] == sent


RATES = [
    ("[0.9,0.5]", "synthetic_count"),
    ("[0.5,0.6,0.7]", "synthetic_rising"),
    ("[1.5,0.6,0.1]", "synthetic_range"),
    ('["a",0.6,0.1]', "synthetic_range"),
    ("[0.9,0.5,0.1]", None),
    ("[true,0.5,0.1]", "synthetic_range"),
]


@pytest.mark.parametrize(("rates", "name"), RATES)
def test_synthetic_rates_are_k_falling_numbers(rates: str, name: str | None) -> None:
    built = made("eagle3", rejection_sample_method="synthetic", synthetic_acceptance_rates=rates)
    assert ("warn", "synthetic_text") in said(built, 9)
    assert [each for severity, each in said(built, 9) if severity == "refuse"] == ([name] if name else [])


@pytest.mark.parametrize(("length", "fits"), [("0.9", False), ("1", True), ("2.4", True), ("4", True), ("4.1", False)])
def test_a_synthetic_length_lies_between_one_and_k_plus_one(length: str, fits: bool) -> None:
    built = made("eagle3", rejection_sample_method="synthetic", synthetic_acceptance_length=length)
    assert built.refused is not fits


def test_what_the_docs_get_wrong_is_said() -> None:
    pair = made("eagle3", target=LLAMA3, drafter="yuhuili/EAGLE3-LLaMA3.1-Instruct-8B")
    assert found(pair, "docs_pair").args["home"] == "meta-llama/Llama-3.1-8B-Instruct"
    misspelt = made("gemma4_mtp", drafter="gg-hf-am/gemma-4-E2B-it-assistant")
    fix = found(misspelt, "misspelt").fix
    assert fix
    assert apply(misspelt.choice, fix).drafter == "google/gemma-4-E2B-it-assistant"
    assert found(made("suffix", num_speculative_tokens=32), "suffix_docs").fix
    assert found(made("medusa", drafter="x/my-eagle3"), "rerouted").severity == "refuse"


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "true", "NaN", "1e400", "x", "9" * 5000, "[" * 300])
def test_a_length_that_is_no_whole_number_is_refused(text: str) -> None:
    built = made("ngram", num_speculative_tokens=text)
    assert built.refused
    assert not built.forms


# ---------------------------------------------------------------- forms

ODD = 'it\'s "a" $HOME `x` \u2019; rm -rf / #\\'
SETUPS = [
    *(made(name) for name in METHODS),
    *(made(name, hardware="amd-192") for name in METHODS),
    *(made(name, hardware="cpu") for name in METHODS if name not in ("dspark", "ngram_gpu")),
    *(made(pair.method, target=pair.target, drafter=pair.drafter) for pair in PAIRS),
    made("eagle", **{SCHEDULE: "[[1,64,3],[65,128,1],[129,512,0]]"}, VLLM_USE_V2_MODEL_RUNNER="0"),
    made("eagle3", rejection_sample_method="synthetic", synthetic_acceptance_rates="[0.9,0.5,0.1]"),
    made("draft_model", drafter="HuggingFaceTB/SmolLM2-135M-Instruct", enforce_eager="true", dtype="float32"),
    made("dspark", enable_adaptive_verification="true", gpu_memory_utilization="0.8"),
    made(
        "draft_model", target=ODD, drafter=ODD, served_model_name=ODD, port="9000", stream="true", include_usage="true"
    ),
]


def form_of(built: Built, name: str) -> str:
    return next(form.text for form in built.forms if form.name == name)


def shell_words(text: str) -> list[str]:
    """What a shell makes of a command: `shlex` knows quotes, and not that a backslash goes on to the next line."""
    return shlex.split(text.replace(" \\\n", " "))


def flags_of(words_: list[str]) -> dict[str, str | bool]:
    """Flags behind a command as a dictionary."""
    flags: dict[str, str | bool] = {}
    place = 0
    while place < len(words_):
        alone = place + 1 == len(words_) or words_[place + 1].startswith("--")
        flags[words_[place]] = True if alone else words_[place + 1]
        place += 1 if alone else 2
    return flags


def expected_flags(built: Built) -> dict[str, Any]:
    return {
        name: value
        for name, value in built.values.items()
        if KEYS[name].place == "server" and not (value is False and KEYS[name].usual != "true")
    }


def compare_flags(built: Built, flags: dict[str, str | bool]) -> None:
    expected = expected_flags(built)
    for name, value in expected.items():
        flag = name.replace("_", "-")
        if value is False:
            assert flags.pop(f"--no-{flag}") is True
        elif value is True:
            assert flags.pop(f"--{flag}") is True
        else:
            assert flags.pop(f"--{flag}") == str(value)
    assert not flags


def test_every_setup_is_written() -> None:
    assert [built.choice for built in SETUPS if built.refused] == []


@pytest.mark.parametrize("built", SETUPS)
def test_bash_reads_back(built: Built) -> None:
    parts = shell_words(form_of(built, "bash"))
    while "=" in parts[0] and parts[0].startswith("VLLM"):
        name, _, value = parts.pop(0).partition("=")
        assert built.values[name] == value
    assert parts[:3] == ["vllm", "serve", built.choice.target]
    flags = flags_of(parts[3:])
    config = flags.pop("--speculative-config", None)
    assert (json.loads(str(config)) if config else None) == built.speculative
    compare_flags(built, flags)


@pytest.mark.parametrize("built", SETUPS)
def test_docker_reads_back(built: Built) -> None:
    maker = HARDWARE[built.choice.hardware].maker
    names = {form.name for form in built.forms} & {"docker", "docker-rocm"}
    assert names == {"nvidia": {"docker"}, "amd": {"docker-rocm"}, "cpu": set()}[maker]
    for name in names:
        parts = shell_words(form_of(built, name))
        image = next(part for part in parts if part.startswith("vllm/"))
        assert image.endswith(f":v{VERSIONS[built.choice.version].exact}")
        assert parts[parts.index(image) + 1] == built.choice.target
        flags = flags_of(parts[parts.index(image) + 2 :])
        config = flags.pop("--speculative-config", None)
        assert (json.loads(str(config)) if config else None) == built.speculative
        assert not {"--port", "--host"} & flags.keys()
        assert f"{built.values.get('port', 8000)}:8000" in parts
        assert ("/dev/kfd" in parts) is (maker == "amd")


def powershell_words(text: str) -> list[str]:
    """PowerShell's words of a line, where nothing but bare words and single-quoted texts stands."""
    line = text.replace(" `\n", " ").strip()
    parts = re.findall(
        r"'((?:[^'\u2018\u2019\u201a\u201b]|'')*(?:[\u2018\u2019\u201a\u201b]{2}[^']*)*)'|([^\s']+)", line
    )
    return [
        re.sub("(['\u2018\u2019\u201a\u201b])\\1", r"\1", quoted) if quoted or not bare else bare
        for quoted, bare in parts
    ]


@pytest.mark.parametrize("built", SETUPS)
def test_powershell_reads_back(built: Built) -> None:
    if built.choice.target == ODD:
        return  # its quotes are read below
    lines = form_of(built, "powershell").splitlines()
    while lines[0].startswith("$env:"):
        name, _, value = lines.pop(0).removeprefix("$env:").partition(" = ")
        assert built.values[name] == value.strip("'")
    parts = powershell_words("\n".join(lines))
    assert '"' not in form_of(built, "powershell"), "which PowerShell before 7.3 would lose"
    assert parts[:3] == ["vllm", "serve", built.choice.target]
    flags = flags_of(parts[3:])
    dotted = {name: flags.pop(name) for name in list(flags) if name.startswith("--speculative-config.")}
    config = {name.partition(".")[2]: as_vllm_reads(str(value)) for name, value in dotted.items()}
    assert (config or None) == built.speculative
    compare_flags(built, flags)


def as_vllm_reads(text: str) -> Any:
    """The value of a dotted flag (`parse_args` in vllm/utils/argparse_utils.py of 0.32.0)."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


@pytest.mark.parametrize("text", ["plain", "it's", "\u2019", ODD, "$env:PATH", "a`nb", ""])
def test_powershell_ends_a_text_only_where_it_ends(text: str) -> None:
    quoted = powershell_quote(text)
    assert quoted[0] == quoted[-1] == "'"
    inside = re.sub("(['\u2018\u2019\u201a\u201b])\\1", "", quoted[1:-1])
    assert not re.search("['\u2018\u2019\u201a\u201b]", inside)
    assert re.sub("(['\u2018\u2019\u201a\u201b])\\1", r"\1", quoted[1:-1]) == text


@pytest.mark.parametrize("value", ["main", "123", "8k", "true", "null", 4, 0.5, True, [[1, 4, 3]], "a b"])
def test_a_dotted_value_keeps_its_kind(value: Any) -> None:
    assert as_vllm_reads(dotted_value(value)) == value


@pytest.mark.parametrize("built", SETUPS)
def test_yaml_reads_back(built: Built) -> None:
    body = yaml.safe_load(form_of(built, "yaml"))
    assert body.pop("model") == built.choice.target
    assert body.pop("speculative-config", None) == built.speculative
    assert body == {name.replace("_", "-"): value for name, value in expected_flags(built).items()}


@pytest.mark.parametrize("built", SETUPS)
def test_python_reads_back(built: Built) -> None:
    tree = ast.parse(form_of(built, "python"))
    call = next(
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "LLM"
    )
    given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert given.pop("model") == built.choice.target
    assert given.pop("speculative_config", None) == built.speculative
    assert given.pop("disable_log_stats") is False
    assert set(given) <= {name for name, key in KEYS.items() if key.place == "server"}
    assert not {"port", "host", "enable_per_request_metrics"} & given.keys()
    assert all(built.values[str(name)] == value for name, value in given.items())


@pytest.mark.parametrize("built", SETUPS)
def test_the_request_reads_back(built: Built) -> None:
    parts = shell_words(form_of(built, "request"))
    body = json.loads(parts[parts.index("-d") + 1])
    assert body["model"] == built.values.get("served_model_name", built.choice.target)
    assert body["messages"][0]["content"]
    assert not {"min_p", "logit_bias", "include_usage"} & body.keys()
    if built.values.get("include_usage"):
        assert body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("built", SETUPS)
def test_other_servers_are_offered_where_their_docs_say_how(built: Built) -> None:
    names = {form.name for form in built.forms}
    if built.choice.hardware == "nvidia-24" and not built.choice.options:
        sglang = built.method in ("baseline", "draft_model", "eagle", "eagle3", "mtp", "dflash")
        tensorrt = built.method in ("baseline", "ngram", "draft_model", "pard", "eagle3", "dflash")
        own = built.method == "draft_model" and built.speculative and "use_heterogeneous_vocab" in built.speculative
        extra = built.method == "eagle" and built.speculative and "draft_tensor_parallel_size" in built.speculative
        if not own and not extra:
            assert (("sglang" in names), ("tensorrt-llm" in names)) == (sglang, tensorrt)
    if "tensorrt-llm" in names and built.method != "baseline":
        config = yaml.safe_load(form_of(built, "tensorrt-llm"))["speculative_config"]
        assert config["max_draft_len"] == built.values["num_speculative_tokens"]
    if "sglang" in names and built.method in ("eagle", "eagle3", "draft_model", "mtp"):
        flags = flags_of(shell_words(form_of(built, "sglang"))[3:])
        steps = int(str(flags["--speculative-num-steps"]))
        assert (steps, int(str(flags["--speculative-num-draft-tokens"]))) == (
            built.values["num_speculative_tokens"],
            steps + 1,
        )


def test_what_a_method_does_not_read_is_not_written() -> None:
    built = made("eagle3", prompt_lookup_max=3)
    assert found(built, "ignored").severity == "warn"
    assert built.speculative
    assert "prompt_lookup_max" not in built.speculative


# ---------------------------------------------------------------- memory, words, the page


def test_an_eight_billion_pair_fits_24_gigabytes_and_not_16() -> None:
    big, small = made("eagle3"), made("eagle3", hardware="nvidia-16")
    assert big.memory
    assert small.memory
    assert (big.memory.fits, small.memory.fits) == (True, False)
    assert 18 < big.memory.total < 21
    two = made("eagle3", hardware="nvidia-16", tensor_parallel_size=2).memory
    assert two
    assert two.fits
    law = made("eagle3", draft_sample_method="probabilistic").memory
    assert law
    assert law.total == pytest.approx(big.memory.total + 4 * 16 * 3 * 128_256 / 1e9)
    assert made("ngram", target="me/own").memory is None


def test_memory_counts_wider_numbers_and_stages() -> None:
    def parts(**options: Any) -> dict[str, float | None]:
        memory = made(options.pop("method", "eagle3"), **options).memory
        assert memory
        return {part.name: part.gigabytes for part in memory.parts}

    usual, wide = parts(), parts(dtype="float32")
    for name in ("target", "drafter", "cache"):
        assert wide[name] == pytest.approx(2 * (usual[name] or 0)), name
    # What is published in few bits stays so; its cache does not.
    quantised, same = parts(method="p_eagle"), parts(method="p_eagle", dtype="float32")
    assert same["target"] == quantised["target"]
    assert same["cache"] == pytest.approx(2 * (quantised["cache"] or 0))
    staged = parts(pipeline_parallel_size=2)
    assert staged["target"] == pytest.approx((usual["target"] or 0) / 2)
    assert staged["drafter"] == usual["drafter"]


@pytest.mark.parametrize(
    ("told", "where", "said_"),
    [
        (["eagle3", "--hardware", "nvidia-8"], "err", "roughly does not fit: about 19.4 GB"),
        (["eagle3"], "out", "roughly fits: about 19.4 GB"),
        (["ngram", "--hardware", "cpu", "--lang", "vi"], "out", "2,4 GB"),
        (["ngram", "--target", "me/own"], "out", "size of this target is not known"),
    ],
)
def test_the_command_says_whether_it_fits(
    told: list[str], where: str, said_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve-config", *told]) == 0
    assert said_ in " ".join(getattr(capsys.readouterr(), where).split())


@pytest.mark.parametrize("language", ["vi", "en"])
def test_everything_that_is_said_has_its_words(language: str) -> None:
    table = words(language).table
    for built in [
        *SETUPS,
        *(each for _, broken, _, kept in CASES for each in (broken, kept)),
        *(broken for broken, *_ in BESIDE),
    ]:
        for row in built.explained:
            assert f"serve.key.{row.name}" in table
        for finding in built.findings:
            sentence = table[f"serve.say.{finding.name}"]
            assert set(re.findall(r"\{(\w+)\}", sentence)) <= finding.args.keys(), finding.name
            if finding.fix:
                fix = table[f"serve.fix.{finding.fix.name}"]
                assert set(re.findall(r"\{(\w+)\}", fix)) <= finding.fix.args.keys(), finding.fix.name
    assert all(f"serve.key.{name}" in table for name in KEYS)
    assert all(f"serve.method.{name}.help" in table for name in METHODS)
    assert all(f"serve.form.{form.name}" in table for built in SETUPS for form in built.forms)


def test_each_row_says_where_it_was_read() -> None:
    assert all(key.source for key in KEYS.values())
    assert all(method.source for method in METHODS.values())
    assert all(pair.source for pair in PAIRS)


def test_the_page_is_answered_with_plain_data() -> None:
    answer = serve({"method": "eagle3", "options": {"num_speculative_tokens": "4"}})
    assert json.loads(json.dumps(answer))["choice"]["target"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert "".join(piece for piece, _ in answer["forms"][0]["pieces"]).startswith("vllm serve")


HOSTILE: list[Any] = [
    None,
    [],
    "x",
    {"method": 3, "options": "x", "target": {"a": 1}},
    {"method": "<b>", "hardware": "__proto__", "version": "9", "options": {"a\n": "b\x00", "__proto__": "1"}},
    {"method": "ngram", "target": "a\nb; rm", "options": {str(number): "1" for number in range(500)}},
    {"method": "eagle3", "drafter": "x" * 9999, "options": {"num_speculative_tokens": ["4"]}},
    {"method": "eagle3", "version": ["0.32"], "hardware": {"a": 1}},
]


@pytest.mark.parametrize("digits", [6, 12, 350])
@pytest.mark.parametrize("name", [key.name for key in KEYS.values() if key.kind in {"whole", "real"}])
def test_a_number_without_end_is_refused_before_anything_is_made_of_it(name: str, digits: int) -> None:
    """A list of a million million rates would take a host's memory; 350 digits are no float."""
    built = made("eagle3", more={"rejection_sample_method": "synthetic", name: "9" * digits})
    if name == "num_speculative_tokens" or digits > 10:
        assert name in {finding.about for finding in built.findings if finding.severity == "refuse"}


@pytest.mark.parametrize("asked", HOSTILE)
def test_a_hostile_page_gets_an_answer_too(asked: Any) -> None:
    choice = choice_of(asked)
    assert all(part.isprintable() and len(part) <= 400 for part in (choice.target, *choice.options.values()))
    assert len(choice.options) <= 40
    json.dumps(serve(asked))


@pytest.mark.parametrize("name", ["-x", "--trust-remote-code", " - --port=1", "—x", "-"])
def test_a_model_s_name_is_never_printed_as_a_flag(name: str) -> None:
    usual = choice_of({"method": "draft_model"})
    choice = choice_of({"method": "draft_model", "target": name, "drafter": name})
    assert not choice.target.startswith("-")
    assert not choice.drafter.startswith("-")
    if not name.strip("- "):
        assert (choice.target, choice.drafter) == (usual.target, usual.drafter)
    for form in build(choice).forms:
        text = "".join(piece.text for piece in form.pieces)
        assert "serve --trust" not in text
        assert "serve -x" not in text
