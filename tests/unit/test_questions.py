"""Question files: what is read of one, and the one sentence that a broken one gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_viz.lab.bench import MOST_NAME, Question, read_questions

GOOD = '{"category": "rag", "turns": ["Who?", "Why?"]}'
OTHER = '{"category": "qa", "turns": ["When?"]}'


def written(folder: Path, *lines: str) -> Path:
    path = folder / "q.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_the_first_turns_are_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeff" + GOOD, OTHER, "", GOOD, GOOD, "")
    assert read_questions(path, None, 2) == [Question("rag", "Who?"), Question("qa", "When?"), Question("rag", "Who?")]
    assert read_questions(path, ["qa"], 5) == [Question("qa", "When?")]


def test_a_prompt_without_turns_or_category_is_read_as_the_page_reads_it(tmp_path: Path) -> None:
    path = written(
        tmp_path, '{"prompt": "a\u2028b"}', '{"category": " ", "prompt": "c"}', '{"category": 7, "turns": ["d"]}'
    )
    assert read_questions(path, None, 9) == [Question("–", "a\u2028b"), Question("–", "c"), Question("7", "d")]
    long = written(tmp_path, f'{{"category": "{"x" * 200}", "turns": ["e"]}}')
    assert len(read_questions(long, None, 1)[0].category) == MOST_NAME


@pytest.mark.parametrize(
    "broken",
    [
        "what?",
        "[]",
        "7",
        "null",
        "{}",
        '{"category": "rag"}',
        '{"category": "rag", "turns": []}',
        '{"category": "rag", "turns": [3]}',
        '{"category": "rag", "turns": "Who?"}',
        '{"category": "rag", "turns": [" "]}',
        '{"category": "rag", "turns": ["Who?"]',
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, broken: str) -> None:
    with pytest.raises(ValueError, match=r"q\.jsonl, line 3: no question\. A line looks like"):
        read_questions(written(tmp_path, GOOD, "", broken, GOOD), None, 1)


def test_what_a_file_does_not_hold_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"q\.jsonl has no category sum; it has: rag, qa"):
        read_questions(written(tmp_path, GOOD, OTHER), ["rag", "sum"], 1)
    with pytest.raises(ValueError, match=r"q\.jsonl holds no question"):
        read_questions(written(tmp_path, "", " "), None, 1)
    path = tmp_path / "q.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"q\.jsonl is no text in UTF-8"):
        read_questions(path, None, 1)
