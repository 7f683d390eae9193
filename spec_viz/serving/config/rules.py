"""The rules: each looks at one thing that vLLM refuses, ignores silently, or that its docs get wrong.

Numbered as in the project's reference; 0 are those beside them. Every finding says why, and has a fix where a change
of the choice answers it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from spec_viz.serving.config.choice import Case, Finding, Fix, resolve
from spec_viz.serving.config.pairs import MISSPELT, MODELS, PAIRS, pairs_of, trained_block
from spec_viz.serving.config.tables import GONE, INSIDE, KEYS, VERSIONS

Findings = Iterator[Finding]

# `MAX_SPEC_LEN` in vllm/v1/sample/rejection_sampler.py of 0.32.0, asserted in every step of runner V1.
MOST_OF_FIRST = 128


def _remove(*names: str) -> Fix:
    return Fix("remove", options=dict.fromkeys(names), args={"option": ", ".join(names)})


def _set(name: str, value: Any) -> Fix:
    return Fix("set", options={name: str(value)}, args={"option": name, "value": str(value)})


def _method(name: str) -> Fix:
    return Fix("method", fields={"method": name, "drafter": ""}, args={"method": name})


# ---------------------------------------------------------------- method and models


def alias(case: Case) -> Findings:
    """1: vLLM rewrites the old `*_mtp` names itself, with a warning; `mtp` is written here at once."""
    if resolve(case.choice.method)[1] == 1:
        yield Finding(1, "note", "alias", {"typed": case.choice.method}, "method", _method("mtp"))


def called(case: Case) -> Findings:
    """2: names that are no method of vLLM's."""
    if resolve(case.choice.method)[1] == 2 and case.method:
        said = "eagle2" if case.choice.method == "eagle2" else "called"
        args = {"typed": case.choice.method, "method": case.method.vllm or "–"}
        yield Finding(2, "note", said, args, "method", _method(case.method.name))


def no_proposer(case: Case) -> Findings:
    """3: `mlp_speculator` passes the config's check and then no proposer takes it (vllm-project/vllm#47825)."""
    if case.method is None:
        if case.choice.method == "mlp_speculator":
            yield Finding(3, "refuse", "mlp_speculator", {}, "method", _method("ngram"))
        else:
            near = difflib.get_close_matches(case.choice.method, ("ngram", "eagle3", "draft_model", "mtp", "suffix"), 1)
            fix = _method(near[0] if near else "ngram")
            yield Finding(3, "refuse", "no_method", {"typed": case.choice.method}, "method", fix)


def models(case: Case) -> Findings:
    """0: a target is needed, and a drafter where the method has one; a known drafter belongs to its own target."""
    if case.method is None:
        return
    known = pairs_of(case.method.name)
    if not case.choice.target:
        fix = Fix("target", fields={"target": known[0].target if known else next(iter(MODELS))})
        yield Finding(0, "refuse", "no_target", {}, "target", _named(fix))
        return
    if case.method.drafter == "none":
        if case.choice.drafter:
            fix = Fix("no_drafter", fields={"drafter": ""})
            yield Finding(0, "warn", "spare_drafter", {"drafter": case.choice.drafter}, "drafter", fix)
        return
    if not case.choice.drafter:
        if case.method.drafter == "needed":
            pair = next((each for each in known if each.target == case.choice.target), known[0])
            fix = Fix("pair", fields={"target": pair.target, "drafter": pair.drafter})
            yield Finding(0, "refuse", "no_drafter", {"target": case.choice.target}, "drafter", _named(fix))
        return
    for wrong, right in MISSPELT.items():
        if case.choice.drafter.startswith(wrong):
            fix = Fix("drafter", fields={"drafter": right + case.choice.drafter.removeprefix(wrong)})
            yield Finding(0, "warn", "misspelt", {"drafter": case.choice.drafter}, "drafter", _named(fix))
    homes = [pair.target for pair in PAIRS if pair.drafter == case.choice.drafter]
    free = case.method.name == "draft_model"
    if homes and case.choice.target not in homes and not free:
        args = {"drafter": case.choice.drafter, "home": homes[0], "target": case.choice.target}
        fix = Fix("target", fields={"target": homes[0]})
        said = "docs_pair" if _is_docs_pair(case) else "other_target"
        yield Finding(0, "warn", said, args, "target", _named(fix))


def _is_docs_pair(case: Case) -> bool:
    """The EAGLE-3 example of vLLM's docs: a target of Llama 3 with a head made for Llama 3.1."""
    return "Meta-Llama-3-8B" in case.choice.target and "LLaMA3.1" in case.choice.drafter


def _named(fix: Fix) -> Fix:
    return Fix(fix.name, fix.fields, fix.options, {"name": fix.fields.get("drafter") or fix.fields.get("target", "")})


def own_layers(case: Case) -> Findings:
    """0: without a drafter MTP and DSpark draft with layers of the target's own checkpoint; not every one has them."""
    if case.name not in ("mtp", "dspark") or case.choice.drafter or case.target is None:
        return
    known = pairs_of(case.name)
    if not any(pair.target == case.choice.target for pair in known):
        fields = {"target": known[0].target} | ({"drafter": known[0].drafter} if known[0].drafter else {})
        fix = Fix("pair", fields=fields, args={"name": known[0].target})
        args = {"method": case.name, "target": case.choice.target}
        yield Finding(0, "refuse", "own_layers", args, "target", fix)


def rerouted(case: Case) -> Findings:
    """0: an explicit `draft_model` or `medusa` is overruled by what the checkpoint's name holds."""
    if case.name not in ("draft_model", "pard", "medusa"):
        return
    lower = case.choice.drafter.lower()
    for part, method in (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark")):
        if part in lower:
            args = {"drafter": case.choice.drafter, "part": part, "method": method}
            fix = Fix("method", fields={"method": method}, args={"method": method})
            yield Finding(0, "refuse", "rerouted", args, "drafter", fix)
            return


def assistant(case: Case) -> Findings:
    """21: a Gemma 4 assistant is no language model of its own."""
    lower = case.choice.drafter.lower()
    if case.name == "draft_model" and "gemma-4" in lower and "assistant" in lower:
        fix = Fix("method", fields={"method": "gemma4_mtp"}, args={"method": "gemma4_mtp"})
        yield Finding(21, "refuse", "assistant", {"drafter": case.choice.drafter}, "method", fix)


def vocabularies(case: Case) -> Findings:
    """11: a plain draft model shares the target's vocabulary, or says that it does not."""
    if case.name not in ("draft_model", "pard") or case.values.get("use_heterogeneous_vocab"):
        return
    target, draft = case.target, case.draft
    if target and draft and target.vocabulary and draft.vocabulary and target.vocabulary != draft.vocabulary:
        args = {"target": target.vocabulary, "draft": draft.vocabulary}
        yield Finding(11, "refuse", "vocabulary", args, "drafter", _set("use_heterogeneous_vocab", "true"))


# ---------------------------------------------------------------- how much is drafted


def length(case: Case) -> Findings:
    """4: K is needed. Suffix decoding has one of its own; DSpark reads it from a checkpoint that is named."""
    if case.method is None or not case.speculates or "num_speculative_tokens" in case.values:
        return
    if case.name == "suffix" or (case.name == "dspark" and case.choice.drafter):
        return
    if case.choice.options.get("num_speculative_tokens"):
        return  # it is there and cannot be read, which is said already
    start = case.pair.gamma if case.pair else case.method.start["num_speculative_tokens"]
    yield Finding(4, "refuse", "no_length", {}, "num_speculative_tokens", _set("num_speculative_tokens", start))


def longest(case: Case) -> Findings:
    """0: runner V1 judges at most 128 drafts of a request in one step."""
    if case.speculates and case.method and case.runner == 1 and case.gamma > MOST_OF_FIRST:
        fix = _set("num_speculative_tokens", MOST_OF_FIRST)
        args = {"gamma": case.gamma, "most": MOST_OF_FIRST}
        yield Finding(0, "refuse", "length_first", args, "num_speculative_tokens", fix)


def block_length(case: Case) -> Findings:
    """5: a block drafter is asked for what it was trained to fill."""
    if case.name not in ("dflash", "dspark") or not case.gamma:
        return
    block = trained_block(case.name, case.choice.drafter)
    if block is None:
        yield Finding(5, "note", f"block_unknown_{case.name}", {}, "num_speculative_tokens")
        return
    best = block - 1 if case.name == "dflash" else block
    if case.gamma != best:
        args = {"block": block, "best": best, "gamma": case.gamma}
        fix = _set("num_speculative_tokens", best)
        yield Finding(5, "warn", f"block_{case.name}", args, "num_speculative_tokens", fix)


def window(case: Case) -> Findings:
    """6: the shortest n-gram is no longer than the longest. One alone sets both, unlike what the docs' page says."""
    if case.name not in ("ngram", "ngram_gpu"):
        return
    low, high = (case.values.get(f"prompt_lookup_{end}") for end in ("min", "max"))
    if low is not None and high is not None and low > high:
        args = {"low": low, "high": high}
        yield Finding(6, "refuse", "window", args, "prompt_lookup_min", _set("prompt_lookup_min", high))
    elif (low is None) != (high is None):
        there, value = ("prompt_lookup_max", high) if low is None else ("prompt_lookup_min", low)
        absent = "prompt_lookup_min" if low is None else "prompt_lookup_max"
        fix = _set(absent, 1 if low is None else max(5, int(low)))
        yield Finding(6, "warn", "window_one", {"there": there, "absent": absent, "value": value}, absent, fix)
    elif low is None:
        yield Finding(6, "note", "window_none", {}, "prompt_lookup_max")


def schedule(case: Case) -> Findings:
    """13: Dynamic SD, as `validate_and_normalize_dynamic_sd_schedule` reads it, and where it does not work."""
    name = "num_speculative_tokens_per_batch_size"
    rows = case.values.get(name)
    if rows is None or case.method is None:
        return
    if case.method.vllm is None:
        return  # said by `ignored`
    if case.name in ("suffix", "medusa"):
        yield Finding(13, "refuse", "schedule_method", {"method": case.name}, name, _remove(name))
        return
    if not all(_is_row(row) for row in rows):
        yield Finding(13, "refuse", "schedule_shape", {}, name, _remove(name))
        return
    ordered = sorted((list(row) for row in rows), key=lambda row: int(row[0]))
    if any(start < 1 or start > end or drafts < 0 for start, end, drafts in ordered):
        yield Finding(13, "refuse", "schedule_range", {}, name, _remove(name))
        return
    if ordered[0][0] != 1:
        fixed = [[1, *ordered[0][1:]], *ordered[1:]]
        yield Finding(13, "refuse", "schedule_first", {"start": ordered[0][0]}, name, _set(name, fixed))
        return
    for before, after in pairwise(ordered):
        if after[0] <= before[1]:
            args = {"start": after[0], "end": before[1]}
            yield Finding(13, "refuse", "schedule_overlap", args, name, _remove(name))
            return
    most = max(row[2] for row in ordered)
    if case.gamma and most > case.gamma:
        cut = [[start, end, min(drafts, case.gamma)] for start, end, drafts in ordered]
        yield Finding(13, "warn", "schedule_cut", {"most": most, "gamma": case.gamma}, name, _set(name, cut))
    if int(case.values.get("data_parallel_size") or 1) > 1:
        yield Finding(13, "warn", "schedule_parallel", {}, name, _remove(name))
    if any(row[2] == 0 for row in ordered):
        yield Finding(13, "note", "schedule_zero", {}, name)
    if case.name not in ("eagle", "eagle3", "dflash"):
        yield Finding(13, "note", "schedule_untested", {"method": case.name}, name)
    if case.runner == 1 and case.machine.maker != "cpu":
        yield Finding(13, "note", "schedule_graphs", {}, name)


def _is_row(row: object) -> bool:
    fits = isinstance(row, list) and len(row) == 3
    return fits and all(isinstance(part, int) and not isinstance(part, bool) for part in row)  # type: ignore[attr-defined]


# ---------------------------------------------------------------- how it is drafted and judged


def parallel(case: Case) -> Findings:
    """7: draft models and EAGLE heads trained for it draft in parallel; block drafters do so by themselves."""
    if not case.values.get("parallel_drafting") or case.method is None:
        return
    if case.name in ("dflash", "dspark"):
        yield Finding(7, "note", "parallel_own", {}, "parallel_drafting", _remove("parallel_drafting"))
    elif case.method.vllm not in ("draft_model", "eagle3"):
        yield Finding(7, "refuse", "parallel", {"method": case.name}, "parallel_drafting", _remove("parallel_drafting"))


def verification(case: Case) -> Findings:
    """8: block verification is in runner V2 only, and gains only where drafts were sampled and q is kept."""
    name = "rejection_sample_method"
    if case.values.get(name) != "block" or case.method is None or not case.speculates:
        return
    if case.needs_first or case.runner == 1:
        said = "block_cpu" if case.machine.maker == "cpu" and not case.needs_first else "block_first"
        said = "block_forced" if case.values.get("VLLM_USE_V2_MODEL_RUNNER") == "0" and not case.needs_first else said
        fix = _remove("VLLM_USE_V2_MODEL_RUNNER") if said == "block_forced" else _remove(name)
        yield Finding(8, "refuse", said, {"method": case.name}, name, fix)
    elif case.method.one_hot:
        yield Finding(8, "warn", "block_one_hot", {"method": case.name}, name, _remove(name))
    elif case.values.get("draft_sample_method") != "probabilistic":
        yield Finding(8, "warn", "block_greedy", {}, name, _set("draft_sample_method", "probabilistic"))


def sampling(case: Case) -> Findings:
    """0: lookups and Medusa heads have no law to sample from."""
    if case.method and case.method.one_hot and case.values.get("draft_sample_method") == "probabilistic":
        args = {"method": case.name}
        yield Finding(0, "warn", "one_hot", args, "draft_sample_method", _remove("draft_sample_method"))


def synthetic(case: Case) -> Findings:
    """9: acceptance by coin needs exactly one description of the coin, and its text is nobody's."""
    length, rates = (case.values.get(f"synthetic_acceptance_{kind}") for kind in ("length", "rates"))
    given = [
        name
        for name, value in (("synthetic_acceptance_length", length), ("synthetic_acceptance_rates", rates))
        if value is not None
    ]
    if not case.speculates:
        return
    if case.values.get("rejection_sample_method") != "synthetic":
        if given:
            fix = _set("rejection_sample_method", "synthetic")
            yield Finding(9, "refuse", "synthetic_off", {"option": given[0]}, given[0], fix)
        return
    yield Finding(
        9, "warn", "synthetic_text", {}, "rejection_sample_method", _remove("rejection_sample_method", *given)
    )
    most = case.gamma + 1
    if len(given) != 1:
        fix = _remove("synthetic_acceptance_rates") if given else _set("synthetic_acceptance_length", _middle(case))
        yield Finding(9, "refuse", "synthetic_both" if given else "synthetic_none", {}, "rejection_sample_method", fix)
    elif length is not None and not 1 <= length <= most:
        args = {"value": length, "most": most}
        fix = _set("synthetic_acceptance_length", min(max(length, 1), most))
        yield Finding(9, "refuse", "synthetic_length", args, "synthetic_acceptance_length", fix)
    elif rates is not None:
        yield from _rates(case, rates)


def _rates(case: Case, rates: list[Any]) -> Findings:
    name = "synthetic_acceptance_rates"
    numbers = all(isinstance(rate, int | float) and not isinstance(rate, bool) for rate in rates)
    if not numbers or any(not 0 <= rate <= 1 for rate in rates):
        yield Finding(9, "refuse", "synthetic_range", {}, name, _set(name, _falling(case)))
    elif len(rates) != case.gamma:
        args = {"count": len(rates), "gamma": case.gamma}
        yield Finding(9, "refuse", "synthetic_count", args, name, _set(name, _falling(case)))
    elif any(after > before for before, after in pairwise(rates)):
        fix = _set(name, sorted(rates, reverse=True))
        yield Finding(9, "refuse", "synthetic_rising", {}, name, fix)


def _falling(case: Case) -> list[float]:
    """The rates of independent acceptance at α = 0.7: α, α², …"""
    return [round(0.7**place, 3) for place in range(1, max(case.gamma, 1) + 1)]


def _middle(case: Case) -> str:
    return f"{1 + sum(_falling(case)):.1f}"


def other_vocabulary(case: Case) -> Findings:
    """10: the vocabulary mapping is for draft models that draft greedily."""
    name = "use_heterogeneous_vocab"
    if not case.values.get(name) or case.method is None or not case.speculates:
        return
    if case.method.vllm != "draft_model":
        yield Finding(10, "refuse", "heterogeneous_method", {"method": case.name}, name, _remove(name))
    elif case.values.get("draft_sample_method") == "probabilistic":
        fix = _remove("draft_sample_method")
        yield Finding(10, "refuse", "heterogeneous_greedy", {}, "draft_sample_method", fix)


def adaptive(case: Case) -> Findings:
    """14: adaptive verification is DSpark's, and shuns what would tell its rows apart."""
    name = "enable_adaptive_verification"
    if not case.values.get(name) or case.method is None or not case.speculates:
        return
    if case.name != "dspark":
        yield Finding(14, "refuse", "adaptive_method", {"method": case.name}, name, _remove(name))
        return
    stages = int(case.values.get("pipeline_parallel_size") or 1)
    clashes = (
        ("logprobs", bool(case.values.get("logprobs"))),
        ("enable_lora", bool(case.values.get("enable_lora"))),
        ("pipeline_parallel_size", stages > 1),
        ("enforce_eager", bool(case.values.get("enforce_eager"))),
    )
    for other, there in clashes:
        if there:
            yield Finding(14, "refuse", "adaptive_clash", {"option": other}, other, _remove(other))


def lossy(case: Case) -> Findings:
    """0: FLy keeps tokens that the exact rule refuses (docs of vLLM, latest)."""
    if case.values.get("rejection_sample_method") != "fly" or case.choice.version == "0.32":
        return
    yield Finding(0, "warn", "fly", {}, "rejection_sample_method", _remove("rejection_sample_method"))
    size = case.values.get("fly_window_size")
    if case.gamma < 2:
        fix = _set("num_speculative_tokens", 2)
        yield Finding(0, "refuse", "fly_length", {}, "num_speculative_tokens", fix)
    elif size is not None and size >= case.gamma:
        fix = _set("fly_window_size", case.gamma - 1)
        yield Finding(0, "refuse", "fly_window", {"gamma": case.gamma}, "fly_window_size", fix)


# ---------------------------------------------------------------- around it


def drafter_parallel(case: Case) -> Findings:
    """12: how many GPUs the drafter is spread over has a key of its own, and two values at most."""
    inside, name = f"{INSIDE}tensor_parallel_size", "draft_tensor_parallel_size"
    size = int(case.values.get("tensor_parallel_size") or 1)
    plain = case.name in ("draft_model", "pard")
    if inside in case.values:
        asked = case.values[inside]
        best = asked if asked in (1, size) and not plain else size
        fix = Fix("set", options={inside: None, name: str(best)}, args={"option": name, "value": str(best)})
        yield Finding(12, "refuse", "parallel_inside", {}, inside, fix)
    asked = case.values.get(name)
    if asked is None:
        return
    if plain and asked != size:
        yield Finding(12, "refuse", "parallel_draft_model", {"size": size, "asked": asked}, name, _set(name, size))
    elif asked not in (1, size):
        yield Finding(12, "refuse", "parallel_size", {"size": size, "asked": asked}, name, _set(name, size))


def runner(case: Case) -> Findings:
    """15: the runner that is forced has to take the method."""
    name = "VLLM_USE_V2_MODEL_RUNNER"
    if case.method is None or not case.speculates:
        return
    forced = case.values.get(name)
    if case.name == "dspark" and forced == "0":
        yield Finding(15, "refuse", "runner_second", {}, name, _remove(name))
    elif case.name == "dspark" and case.machine.maker == "cpu":
        fix = Fix("hardware", fields={"hardware": "nvidia-24"}, args={"hardware": "nvidia-24"})
        yield Finding(15, "refuse", "runner_cpu", {}, "hardware", fix)
    elif forced == "1" and case.needs_first:
        yield Finding(15, "refuse", "runner_first", {"method": case.name}, name, _remove(name))
    elif forced == "1" and case.machine.maker == "cpu":
        yield Finding(15, "refuse", "runner_triton", {}, name, _remove(name))


def lookup_on_cpu(case: Case) -> Findings:
    """0: the lookup on the GPU takes pinned memory and CUDA streams (vllm/v1/worker/gpu_model_runner.py of 0.32.0)."""
    if case.name == "ngram_gpu" and case.machine.maker == "cpu":
        yield Finding(0, "refuse", "lookup_cpu", {}, "hardware", _method("ngram"))


def context(case: Case) -> Findings:
    """0: vLLM refuses a context that the target's own config does not allow (vllm/config/model.py of 0.32.0)."""
    length, most = case.values.get("max_model_len"), case.target.context if case.target else None
    if length is not None and most is not None and length > most:
        args = {"length": length, "most": most, "target": case.choice.target}
        yield Finding(0, "refuse", "context", args, "max_model_len", _set("max_model_len", most))


def batch(case: Case) -> Findings:
    """0: a step has room for one token of each request at least (vllm/config/scheduler.py of 0.32.0)."""
    tokens, seats = case.values.get("max_num_batched_tokens"), case.values.get("max_num_seqs")
    if tokens is not None and seats is not None and tokens < seats:
        args = {"tokens": tokens, "seats": seats}
        yield Finding(0, "refuse", "batch", args, "max_num_batched_tokens", _set("max_num_batched_tokens", seats))


def sample_request(case: Case) -> Findings:
    """0: what the sample request would be answered with HTTP 400 for, by any server."""
    if int(case.values.get("n") or 1) > 1 and case.values.get("temperature") == 0:
        # `_verify_greedy_sampling` in vllm/sampling_params.py of 0.32.0.
        yield Finding(0, "warn", "greedy_many", {"n": case.values["n"]}, "n", _remove("n"))
    length, tokens = case.values.get("max_model_len"), case.values.get("max_tokens")
    if length is not None and tokens is not None and tokens >= length > 1:
        # vllm/renderers/params.py of 0.32.0; the prompt needs room too.
        args = {"tokens": tokens, "length": length}
        yield Finding(0, "warn", "answer_long", args, "max_tokens", _set("max_tokens", length // 2))


def statistics(case: Case) -> Findings:
    """16: without the log's statistics there are no counters, and no timings in an answer either."""
    if not case.values.get("disable_log_stats"):
        return
    fix = _remove("disable_log_stats")
    if case.values.get("enable_per_request_metrics"):
        # vllm/entrypoints/launchers/cli_args.py of 0.32.0 raises.
        yield Finding(16, "refuse", "statistics_clash", {}, "disable_log_stats", fix)
    else:
        yield Finding(16, "warn", "statistics", {}, "disable_log_stats", fix)


def per_request(case: Case) -> Findings:
    """17: what speculation did is told of one answer at a time, by a server that speculates."""
    name = "per_request_spec_decode_metrics"
    if case.values.get(name, "none") == "none":
        return
    if not case.speculates:
        yield Finding(17, "refuse", "metrics_baseline", {}, name, _remove(name))
        return
    if int(case.values.get("n") or 1) > 1:
        yield Finding(17, "warn", "metrics_many", {}, "n", _remove("n"))
    usage = case.values.get("include_usage") or case.values.get("enable_force_include_usage")
    if case.values.get("stream") and not usage:
        yield Finding(17, "warn", "metrics_stream", {}, "stream", _set("include_usage", "true"))


def refused_requests(case: Case) -> Findings:
    """18: two sampling options answer with HTTP 400 under speculation; they are left out of the request."""
    if case.method is None or not case.speculates:
        return
    for name in ("min_p", "logit_bias"):
        if case.values.get(name):
            yield Finding(18, "note", "request_refused", {"option": name}, name, _remove(name))


def package(case: Case) -> Findings:
    """20: suffix decoding lives in a package of its own."""
    if case.name == "suffix":
        yield Finding(20, "note", "arctic", {}, "method")
        if case.gamma == 32:
            fix = _set("num_speculative_tokens", 24)
            yield Finding(20, "note", "suffix_docs", {}, "num_speculative_tokens", fix)


def graphs(case: Case) -> Findings:
    """0: LoRA wants room for every draft in one batch (`create_engine_config` in vllm/engine/arg_utils.py)."""
    if not (case.values.get("enable_lora") and case.speculates):
        return
    batch, seats = case.values.get("max_num_batched_tokens"), case.values.get("max_num_seqs")
    if batch is not None and seats is not None and batch < seats * (case.gamma + 1):
        need = seats * (case.gamma + 1)
        fix = _set("max_num_batched_tokens", need)
        yield Finding(0, "refuse", "lora", {"need": need, "batch": batch}, "max_num_batched_tokens", fix)


# ---------------------------------------------------------------- keys


def unknown(case: Case) -> Findings:
    """22: vLLM forbids keys that it does not know."""
    for name, text in case.choice.options.items():
        if name in KEYS or text == "":
            continue
        near = [] if name in GONE else difflib.get_close_matches(name, KEYS, 1, 0.75)
        fix = _remove(name)
        if near:
            fix = Fix("rename", options={name: None, near[0]: text}, args={"option": name, "near": near[0]})
        yield Finding(22, "refuse", "gone" if name in GONE else "unknown", {"option": name}, name, fix)
    for name, value in case.values.items():
        key = KEYS[name]
        newer = key.since > case.choice.version or (value == "fly" and case.choice.version < "0.33")
        if newer:
            args = {"option": name, "version": case.choice.version}
            yield Finding(22, "refuse", "newer", args, name, _remove(name))


def ignored(case: Case) -> Findings:
    """0: keys that this method does not read; vLLM takes most without a word, and refuses two."""
    if case.method is None:
        return
    for name in case.values:
        key = KEYS[name]
        if key.place != "speculative":
            continue
        if case.method.vllm is None:
            yield Finding(0, "warn", "ignored_baseline", {"option": name}, name, _remove(name))
        elif key.methods and case.method.name not in key.methods:
            severe = name in ("dspark_draft_topk", "index_share_for_mtp_iteration")
            args = {"option": name, "method": case.name}
            yield Finding(0, "refuse" if severe else "warn", "ignored", args, name, _remove(name))


def carried(case: Case) -> Findings:
    """0: a version whose package was not read says so."""
    version = VERSIONS[case.choice.version]
    if not version.read:
        yield Finding(0, "note", "carried", {"version": version.name}, "version")


RULES: tuple[Callable[[Case], Findings], ...] = (
    no_proposer,
    alias,
    called,
    models,
    own_layers,
    rerouted,
    assistant,
    vocabularies,
    length,
    longest,
    block_length,
    window,
    schedule,
    parallel,
    verification,
    sampling,
    synthetic,
    other_vocabulary,
    adaptive,
    lossy,
    drafter_parallel,
    runner,
    lookup_on_cpu,
    context,
    batch,
    sample_request,
    statistics,
    per_request,
    refused_requests,
    package,
    graphs,
    unknown,
    ignored,
    carried,
)


def check(case: Case) -> tuple[Finding, ...]:
    """Everything the rules say of a case, the gravest first."""
    order = ("refuse", "warn", "note")
    said = [finding for rule in RULES for finding in rule(case)]
    return tuple(sorted(said, key=lambda finding: order.index(finding.severity)))
