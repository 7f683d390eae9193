"""Our own prompts: the same everywhere, distinct, readable, and a part of them never trained on."""

import re
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.content.presets import load_presets
from spec_viz.models import weights
from spec_viz.training.pen import Pen, say
from spec_viz.training.prompts import PER_TASK, TASKS, Prompt, make_prompts
from spec_viz.training.tasks.passages import KINDS, Kind, tell

PROMPTS = make_prompts()
PROSE = [prompt for prompt in PROMPTS if prompt.task != "code"]


def test_there_are_twenty_thousand_distinct_prompts_of_six_tasks() -> None:
    assert len({prompt.text for prompt in PROMPTS}) == len(PROMPTS) >= 20_000
    assert Counter(prompt.task for prompt in PROMPTS) == dict.fromkeys(TASKS, PER_TASK)


def test_another_process_with_another_hash_seed_writes_the_same() -> None:
    program = "from spec_viz.training.prompts import make_prompts; print(repr(make_prompts(3, 40)))"
    out = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONHASHSEED": "1"}, capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == repr(make_prompts(3, 40))


def test_another_seed_writes_others() -> None:
    assert {prompt.text for prompt in make_prompts(1, 50)} - {prompt.text for prompt in make_prompts(2, 50)}


def test_the_held_out_part_hangs_on_the_text_alone() -> None:
    held_out = {prompt.text for prompt in PROMPTS if prompt.held_out}
    assert 0.04 < len(held_out) / len(PROMPTS) < 0.06
    others = {prompt.text for prompt in make_prompts(1) if not prompt.held_out}
    assert not held_out & others
    for task in TASKS:
        share = sum(prompt.held_out for prompt in PROMPTS if prompt.task == task) / PER_TASK
        assert 0.03 < share < 0.07


def test_any_part_of_the_list_holds_every_task() -> None:
    for start in range(0, len(PROMPTS) - 256, 2560):
        assert {prompt.task for prompt in PROMPTS[start : start + 256]} == {*TASKS}


@pytest.mark.parametrize(
    "slip", [r"[{}$]", r" {2,}", r" [.,?!;:]", r"\b[Aa] [aeio]\w+", r"\b[Aa]n [^aeiouh1\W8]", r"\.\."]
)
def test_prose_reads_well(slip: str) -> None:
    found = [
        prompt.text for prompt in PROSE if re.search(slip, prompt.text) and not re.search(r"\b[Aa] one", prompt.text)
    ]
    assert found[:3] == []


def test_prompts_begin_with_a_capital_and_end_a_sentence() -> None:
    for prompt in PROSE:
        assert prompt.text == prompt.text.strip()
        assert prompt.text[0].isupper() or prompt.text[0] in '0123456789"'
        assert prompt.text[-1] in '.?!"'


def test_no_blank_is_left_in_code() -> None:
    code = [prompt.text for prompt in PROMPTS if prompt.task == "code"]
    assert not [text for text in code if "$" in text or "\\" in text]
    for text in code:
        assert text.count("{") == text.count("}")
        assert text.count("```") in (0, 2)


def test_python_in_a_prompt_is_python() -> None:
    blocks = [re.search(r"```python\n(.*)\n```", prompt.text, re.DOTALL) for prompt in PROMPTS]
    found = [block[1] for block in blocks if block]
    assert len(found) > 300
    for block in found:
        compile(block, "prompt", "exec")


def test_no_preset_is_among_them() -> None:
    assert not {preset.prompt.strip() for preset in load_presets()} & {prompt.text for prompt in PROMPTS}


@given(st.integers(0, 10**6))
def test_a_passage_says_no_fact_of_two_things(number: int) -> None:
    pen = Pen("test", number)
    passage, facts = tell(pen, pen.pick(KINDS))
    assert facts["town"] != facts["far"]
    assert facts["few"] != facts["some"]
    assert 250 < len(passage) < 900


@pytest.mark.parametrize("kind", KINDS)
def test_every_wording_of_a_passage_finds_its_facts(kind: Kind) -> None:
    facts = tell(Pen(0), kind)[1]
    for template in (*(wording for wordings in kind.sentences for wording in wordings), *kind.questions):
        assert say(template, facts)


def test_two_blanks_of_a_name_get_two_words() -> None:
    for number in range(50):
        one, two = Pen(number).fill("{x} and {x}", {"x": ("Ann", "Ben", "Cy")}).split(" and ")
        assert one != two


def test_an_article_follows_its_word() -> None:
    assert Pen(0).fill("a {x}, {x}", {"x": ("honest uncle",)}) == "An honest uncle, honest uncle"
    assert Pen(0).fill("a {x}", {"x": ("useful unit",)}) == "A useful unit"


@pytest.mark.skipif(not weights.is_cached("smollm2-135m"), reason="the default model is not in the cache")
def test_prompts_fit_the_target() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(weights.folder("smollm2-135m"), local_files_only=True)
    lengths = [len(ids) for ids in tokenizer([prompt.text for prompt in PROMPTS]).input_ids]
    assert min(lengths) >= 4
    assert max(lengths) < 400


def test_a_prompt_says_whether_it_is_held_out() -> None:
    assert {Prompt("chat", str(number)).held_out for number in range(200)} == {True, False}
