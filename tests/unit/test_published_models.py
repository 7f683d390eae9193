"""Drafters in the layouts in which they are published, on tiny random checkpoints: logits as transformers computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    Gemma4AssistantConfig,
    Gemma4AssistantForCausalLM,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.generation.candidate_generator import SinglePositionMultiTokenCandidateGenerator

from spec_viz.drafters.assistant import Assisted
from spec_viz.drafters.assistant import make as make_assistant
from spec_viz.drafters.pard import FAMILY, Slots, make
from spec_viz.engine.target import CachedModel
from spec_viz.models.published_models import read_assistant, read_pard, write_pard
from tests.engine import heads
from tests.engine.heads import run_with, texts
from tests.engine.tiny import VOCABULARY, generate, model, prompts

TEXT = list(texts()[0][:22])
COUNT = 4


def checkpoint(folder: Path, vocabulary: int, tied: bool, **more: Any) -> Any:
    """A random Llama as PARD's authors save theirs."""
    config = LlamaConfig(**{**heads.PARD, "vocab_size": vocabulary, "tie_word_embeddings": tied, **more})
    torch.manual_seed(4)
    made: Any = LlamaForCausalLM(config)
    made.save_pretrained(folder)
    return made.eval()


@torch.inference_mode()
def masked(llama: Any, mask: int) -> Tensor:
    """Logits (COUNT, V) of one plain pass over a text and the masks behind it."""
    ids = torch.tensor([[*TEXT, *[mask] * (COUNT - 1)]])
    logits: Tensor = llama(input_ids=ids, use_cache=False).logits[0, -COUNT:]
    return logits


def slots(folder: Path) -> Tensor:
    """What our drafter says of a checkpoint, through its cache."""
    head = read_pard(folder, model())
    said = Slots(model(), *make(head, model()))
    said.feed(TEXT[:9], keep=1)
    said.count = COUNT
    said.feed(TEXT[9:], keep=1)
    return said.logits


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("padding", [0, 8])
def test_a_pard_checkpoint_says_what_transformers_says(tmp_path: Path, tied: bool, padding: int) -> None:
    mask = VOCABULARY - 1 if padding == 0 else VOCABULARY + 3
    llama = checkpoint(tmp_path, VOCABULARY + padding, tied, pard_token=mask)
    assert json.loads((tmp_path / "config.json").read_text())["pard_token"] == mask
    said, expected = slots(tmp_path), masked(llama, mask)[:, :VOCABULARY]
    torch.testing.assert_close(said, expected, atol=1e-5, rtol=1e-4)
    assert float((expected[1] - expected[2]).abs().max()) > 1e-3


def test_a_pard_checkpoint_drafts_on_the_loop(tmp_path: Path) -> None:
    checkpoint(tmp_path, VOCABULARY, tied=False, pard_token=VOCABULARY - 1)
    head = read_pard(tmp_path, model())
    prompt = prompts(1)[0]
    for rule in ("match", "token"):
        assert run_with(FAMILY, prompt, rule=rule, opened=head).output == generate(prompt, heads.NEW)


def test_what_is_no_pard_checkpoint_for_this_target_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path / "plain", VOCABULARY, tied=False)
    with pytest.raises(ValueError, match="names no pard_token"):
        read_pard(tmp_path / "plain", model())
    checkpoint(tmp_path / "small", VOCABULARY - 4, tied=False, pard_token=3)
    with pytest.raises(ValueError, match=f"knows {VOCABULARY - 4} ids and the target {VOCABULARY}"):
        read_pard(tmp_path / "small", model())


@pytest.mark.parametrize("mask", [VOCABULARY, 0])
def test_a_head_of_ours_is_written_as_a_pard_checkpoint(tmp_path: Path, mask: int) -> None:
    head = heads.head("pard")
    write_pard(head, model(), mask, tmp_path / "made")
    llama: Any = LlamaForCausalLM.from_pretrained(tmp_path / "made")
    ours = Slots(model(), *make(head, model()))
    ours.count = COUNT
    assert mask not in TEXT
    ours.feed(TEXT, keep=1)
    ids = heads.draft_ids()
    torch.testing.assert_close(masked(llama, mask)[:, ids], ours.logits[:, ids], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(slots(tmp_path / "made")[:, ids], ours.logits[:, ids], atol=1e-4, rtol=1e-4)


def test_a_mask_further_off_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"the target's {VOCABULARY} ids, or {VOCABULARY}"):
        write_pard(heads.head("pard"), model(), VOCABULARY + 1, tmp_path / "made")


# ---------------------------------------------------------------- Gemma 4

SMALL: dict[str, Any] = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "global_head_dim": 16,
    "max_position_embeddings": 128,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}


@pytest.fixture(scope="module")
def gemma() -> Any:
    torch.manual_seed(0)
    made: Any = Gemma4ForCausalLM(Gemma4TextConfig(**SMALL))
    return made.eval()


def assistant(folder: Path, centroids: bool) -> Any:
    text = SMALL | {"hidden_size": 16, "num_hidden_layers": 2, "layer_types": SMALL["layer_types"][:2]}
    config = Gemma4AssistantConfig(
        text_config=Gemma4TextConfig(**text).to_dict(),
        backbone_hidden_size=32,
        use_ordered_embeddings=centroids,
        num_centroids=8,
        centroid_intermediate_top_k=3,
    )
    torch.manual_seed(1)
    made: Any = Gemma4AssistantForCausalLM(config)
    if centroids:
        made.masked_embedding.token_ordering.copy_(torch.randperm(48))
    made.save_pretrained(folder)
    return made.eval()


@pytest.mark.parametrize("centroids", [False, True])
@pytest.mark.parametrize("length", [5, 30])
@torch.inference_mode()
def test_gemma_s_assistant_drafts_as_transformers_generates(
    tmp_path: Path, gemma: Any, centroids: bool, length: int
) -> None:
    """Within the window of 8 tokens and beyond it; the entries are those of our cache, which keeps all of them."""
    theirs = assistant(tmp_path, centroids)
    theirs.generation_config.num_assistant_tokens = COUNT
    ids = torch.randint(1, 48, (1, length), generator=torch.Generator().manual_seed(2))
    # Without a cache the target shows every entry.
    out = gemma(ids, output_hidden_states=True, return_shared_kv_states=True, use_cache=False)
    text = torch.cat([ids, out.logits[:, -1:].argmax(-1)], 1)
    gemma.generation_config.max_length = 100
    generator: Any = SinglePositionMultiTokenCandidateGenerator(
        theirs, gemma.get_input_embeddings(), gemma.generation_config
    )
    drafted, logits = generator.get_candidates(text, {}, out, is_first_iteration=False, n_last_matches=0)
    assert logits is not None
    target = CachedModel(gemma)
    target.feed(ids[0].tolist(), keep=1)
    ours = Assisted(target, make_assistant(read_assistant(tmp_path, gemma), gemma))
    ours.hear(out.hidden_states[-1][0, -1:])
    said, tokens = [ours.feed(text[0, -1:].tolist(), keep=1)], list[int]()
    for node in range(COUNT - 1):
        tokens.append(int(said[-1].argmax()))
        said.append(ours.feed_tree(tokens[-1:], [at - 1 for at in range(node + 1)], keep=1)[0])
    tokens.append(int(said[-1].argmax()))
    torch.testing.assert_close(torch.cat(said), logits[0])
    assert tokens == drafted[0, text.shape[1] :].tolist()
    assert len({*tokens}) > 1


@torch.inference_mode()
def test_nodes_side_by_side_are_asked_for_as_one_by_one(tmp_path: Path, gemma: Any) -> None:
    assistant(tmp_path, centroids=False)
    target = CachedModel(gemma)
    target.feed([7, 9, 11, 3], keep=1)
    module = make_assistant(read_assistant(tmp_path, gemma), gemma)
    state = torch.randn(1, 32, generator=torch.Generator().manual_seed(3))

    def begun() -> Assisted:
        made = Assisted(target, module)
        made.hear(state)
        made.feed([5], keep=1)
        return made

    together = begun().feed_tree([8, 30], [-1, -1], keep=2)[0]
    for row, token in enumerate((8, 30)):
        torch.testing.assert_close(together[row : row + 1], begun().feed_tree([token], [-1], keep=1)[0])


def test_an_assistant_of_another_target_is_refused(tmp_path: Path, gemma: Any) -> None:
    assistant(tmp_path, centroids=False)
    with pytest.raises(ValueError, match="assists a Gemma 4 target of width 32"):
        read_assistant(tmp_path, model())
    checkpoint(tmp_path / "llama", VOCABULARY, tied=False)
    with pytest.raises(ValueError, match="holds no assistant"):
        read_assistant(tmp_path / "llama", gemma)
