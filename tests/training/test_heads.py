"""Every recipe from a corpus to a head that is read again, on a toy; and the loop that goes on where it was stopped."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from spec_viz import cli
from spec_viz.models import heads
from spec_viz.models.catalogue import TRAINED
from spec_viz.models.load import Loaded
from spec_viz.training import lesson
from spec_viz.training.batches import batches, count_batches
from spec_viz.training.bigram import count
from spec_viz.training.features import Corpus, read_features, write_features
from spec_viz.training.fit import Course, fit
from spec_viz.training.heads import NAMES, RECIPES
from spec_viz.training.precision import quick_dtype
from spec_viz.training.recipe import Workshop
from spec_viz.training.shards import read_shard
from spec_viz.training.smoke import toy_corpus, toy_target
from spec_viz.training.vocabulary import choose

COURSE = Course(2, budget=1500, rate=3e-3)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Loaded, Corpus]:
    folder = tmp_path_factory.mktemp("toy")
    loaded = toy_target()
    toy_corpus(loaded, folder / "corpus")
    corpus = Corpus(folder / "corpus", folder / "features")
    write_features(loaded.model, corpus)
    return loaded, corpus


def test_the_command_line_offers_every_recipe() -> None:
    assert set(TRAINED) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_smoke(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(["train", name, "--smoke", "--out", str(tmp_path / name), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(heads, "HEADS", tmp_path)
    head = heads.read_head(name, "toy")
    assert made == json.loads((tmp_path / name / heads.PROVENANCE).read_text(encoding="utf-8"))
    assert sum(tensor.numel() for tensor in head.tensors.values() if tensor.is_floating_point()) == made["parameters"]
    if name != "bigram":
        assert made["curve"][-1]["step"] == made["steps"] > 0
        assert all(0 < rate < 1 for rate in made["held_out"]["all"]["alpha"])


@pytest.mark.parametrize("name", list(RECIPES))
def test_a_head_learns(name: str, toy: tuple[Loaded, Corpus], tmp_path: Path) -> None:
    """The loss falls below that of a head which has seen nothing; a wrong alignment would leave it there."""
    loaded, corpus = toy
    torch.manual_seed(0)
    learner = RECIPES[name].learner(Workshop(loaded, corpus))
    batch = next(iter(batches(corpus, True, 4000)))
    with torch.no_grad():
        before = float(learner(batch).loss)
    fit(learner, corpus, tmp_path, replace(COURSE, epochs=12))
    with torch.no_grad():
        after = float(learner(batch).loss)
    assert after < 0.97 * before


def after(batches_done: int) -> Callable[[], bool]:
    """Says stop when it has been asked so often."""
    asked = itertools.count()
    return lambda: next(asked) >= batches_done


def test_a_run_that_was_stopped_ends_like_one_that_was_not(toy: tuple[Loaded, Corpus], tmp_path: Path) -> None:
    loaded, corpus = toy

    def learned(stops: list[int], folder: Path) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        learner = RECIPES["medusa"].learner(Workshop(loaded, corpus))
        for stop in [*stops, 10**6]:
            torch.manual_seed(stop)
            learner = RECIPES["medusa"].learner(Workshop(loaded, corpus)) if stops else learner
            progress = fit(learner, corpus, folder, COURSE, after(stop))
        assert progress.step == progress.steps
        return dict(learner.state_dict())

    whole, parts = learned([], tmp_path / "whole"), learned([3, 5], tmp_path / "parts")
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight)


@pytest.mark.parametrize(
    ("able", "dtype"),
    [({"avx2": True, "avx512_bf16": False}, torch.float32), ({"amx_bf16": True}, torch.bfloat16)],
)
def test_a_head_learns_in_what_the_processor_multiplies_in(
    able: dict[str, bool],
    dtype: torch.dtype,
    toy: tuple[Loaded, Corpus],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Emulated bfloat16 made the same course four times as long on a processor without instructions for it."""
    loaded, corpus = toy
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    assert quick_dtype() == dtype
    learner = RECIPES["medusa"].learner(Workshop(loaded, corpus))
    seen, read = set[bool](), set[torch.dtype]()

    def spy(states: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        read.update((states.dtype, output.dtype))
        return torch.nn.functional.linear(states, output)

    monkeypatch.setattr(lesson, "linear", spy)
    learner.register_forward_pre_hook(lambda *_: seen.add(torch.is_autocast_enabled("cpu")))
    fit(learner, corpus, tmp_path, replace(COURSE, epochs=1))
    assert seen == {dtype == torch.bfloat16}
    assert read == {dtype}


def test_another_course_does_not_go_on_from_this_one_s_checkpoint(toy: tuple[Loaded, Corpus], tmp_path: Path) -> None:
    loaded, corpus = toy
    learner = RECIPES["medusa"].learner(Workshop(loaded, corpus))
    fit(learner, corpus, tmp_path, COURSE)
    with pytest.raises(ValueError, match="another course"):
        fit(learner, corpus, tmp_path, replace(COURSE, rate=1e-4))


def test_features_are_the_target_s_own_states_and_belong_to_their_shard(toy: tuple[Loaded, Corpus]) -> None:
    loaded, corpus = toy
    samples = read_shard(corpus.folder, 1)
    hidden, last = read_features(corpus, 1, samples)[7]
    ids = torch.from_numpy(samples[7].ids.astype("int64"))[None]
    out = loaded.model.model(ids, output_hidden_states=[2, 3], use_cache=False)
    torch.testing.assert_close(last.float(), out.last_hidden_state[0], rtol=2e-2, atol=2e-2)
    for place, layer in ((0, 2), (1, 3)):
        torch.testing.assert_close(hidden[:, place].float(), out.hidden_states[layer][0], rtol=2e-2, atol=2e-2)
    # Six layers: the middle one and the high one are the same.
    assert torch.equal(hidden[:, 1], hidden[:, 2])
    with pytest.raises(ValueError, match="another corpus"):
        read_features(replace(corpus, features=_swapped(corpus)), 1, samples)


def test_features_stop_between_two_passes_and_leave_no_half_shard(toy: tuple[Loaded, Corpus], tmp_path: Path) -> None:
    loaded, corpus = toy
    elsewhere = replace(corpus, features=tmp_path / "features")
    heard: list[int] = []
    write_features(loaded.model, elsewhere, after(1), heard.append)
    assert len(heard) == 1
    assert list(elsewhere.features.iterdir()) == []
    write_features(loaded.model, elsewhere)
    assert elsewhere.place(0).read_bytes() == corpus.place(0).read_bytes()


def _swapped(corpus: Corpus) -> Path:
    folder = corpus.features.parent / "swapped"
    folder.mkdir(exist_ok=True)
    (folder / corpus.place(1).name).write_bytes(corpus.place(0).read_bytes())
    return folder


def test_every_training_sequence_comes_once_an_epoch_and_no_held_out_one(toy: tuple[Loaded, Corpus]) -> None:
    _, corpus = toy
    for seed in (0, 1):
        seen = list(batches(corpus, False, COURSE.budget, seed))
        assert len(seen) == count_batches(corpus, COURSE.budget, seed)
        rows = [
            tuple(row[:length].tolist()) for batch in seen for row, length in zip(batch.ids, batch.lengths, strict=True)
        ]
        assert sorted(rows) == sorted(tuple(sample.ids.tolist()) for sample in corpus.samples(held_out=False))
    first, second = (next(iter(batches(corpus, False, COURSE.budget, seed))).ids.tolist() for seed in (0, 1))
    assert first != second


def test_the_draft_vocabulary_is_what_the_target_writes_most(toy: tuple[Loaded, Corpus]) -> None:
    _, corpus = toy
    samples = list(corpus.samples(held_out=False))
    words = choose(samples, 64, 10)
    counts = torch.zeros(64)
    for sample in samples:
        counts += torch.bincount(torch.from_numpy(sample.answer.astype("int64")), minlength=64)
    assert set(words.ids.tolist()) == set(counts.topk(10).indices.tolist())
    assert words.coverage == pytest.approx(float(counts.topk(10).values.sum() / counts.sum()))
    assert (torch.arange(10) + words.d2t).tolist() == words.ids.tolist()
    assert words.t2d.nonzero()[:, 0].tolist() == words.ids.tolist()


def test_a_bigram_table_holds_what_followed(toy: tuple[Loaded, Corpus]) -> None:
    _, corpus = toy
    samples = list(corpus.samples(held_out=False))
    table = count(samples, 64)
    pairs = torch.zeros(64, 64)
    for sample in samples:
        for before, behind in zip(sample.answer[:-1], sample.answer[1:], strict=True):
            pairs[before, behind] += 1
    for token in range(64):
        kept = min(16, int((pairs[token] > 0).sum()))
        best = pairs[token].sort(descending=True, stable=True)
        assert table["next"][token, :kept].tolist() == best.indices[:kept].tolist()
        total = float(best.values[:kept].sum())
        shares = (best.values[:kept] / total) if total else best.values[:kept]
        torch.testing.assert_close(table["chance"][token, :kept], shares)
        assert not table["chance"][token, kept:].any()
