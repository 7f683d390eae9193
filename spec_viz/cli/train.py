"""`train`: from prompts to a head with its papers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from spec_viz.cli.measure import save, show_bench
from spec_viz.cli.terminal import command, load_model, out, pause, show, signals
from spec_viz.models.catalogue import DEFAULT, TRAINED

if TYPE_CHECKING:
    from spec_viz.training.recipe import Workshop


def add(commands: Any) -> None:
    """Offer `train` and its steps."""
    train = commands.add_parser("train", help="make what our draft heads learn from")
    steps = train.add_subparsers(dest="step", required=True)
    data = command(steps, "data", run_train_data, "the target answers our prompts; goes on where it was stopped")
    data.add_argument("--out", type=Path, required=True, metavar="DIR")
    data.add_argument("--tokens", type=int, required=True, help="how many of the target's own tokens to reach")
    data.add_argument("--batch", type=int, default=64, help="answers written side by side")
    data.add_argument("--seed", type=int, default=0)
    data.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="what the target computes in; bfloat16 hurries",
    )
    stats = command(steps, "stats", run_train_stats, "what a corpus holds, and how much of it repeats itself")
    stats.add_argument("--data", type=Path, required=True, metavar="DIR")
    live = command(steps, "measure", run_train_measure, "run every head on held-out prompts; its papers get the rates")
    live.add_argument("--limit", type=int, default=5, help="prompts a task")
    live.add_argument("--max-new-tokens", type=int, default=64)
    live.add_argument("--gamma", type=int, default=4)
    live.add_argument("--repeats", type=int, default=1)
    live.add_argument("--out", type=Path, metavar="RESULT.json")
    for name in TRAINED:
        head = command(steps, name, run_train_head, f"make the head {name} from a corpus; goes on where it was stopped")
        head.set_defaults(name=name)
        head.add_argument("--data", type=Path, metavar="DIR", help="the corpus; assets/corpus otherwise")
        head.add_argument("--out", type=Path, metavar="DIR", help="where the head goes; its place in assets otherwise")
        head.add_argument("--work", type=Path, metavar="DIR", help="features, checkpoints, log; in the cache otherwise")
        head.add_argument("--shards", type=int, help="only so many shards of the corpus")
        head.add_argument("--smoke", action="store_true", help="seconds on a toy target instead: does it run at all?")
        if name != "bigram":
            head.add_argument("--epochs", type=int, help="times over the corpus")
            head.add_argument("--rate", type=float, help="the highest learning rate")
            head.add_argument("--seed", type=int, default=0)


def run_train_data(options: argparse.Namespace) -> int:
    """Write shards until there are enough tokens; a signal ends it at once, and what was written whole stays."""
    from spec_viz.training.generate import Plan, generate
    from spec_viz.training.prompts import make_prompts

    plan = Plan(batch=options.batch, seed=options.seed)
    loaded = load_model(DEFAULT, options.dtype)
    bar = tqdm(total=options.tokens, unit="tok", desc="train data", file=sys.stderr, mininterval=pause(), miniters=1)

    def hear(tokens: int, already: bool) -> None:
        if already:
            bar.initial = tokens
        bar.update(tokens)

    with signals() as stopped, bar:
        prompts = make_prompts(options.seed)
        have = generate(loaded, prompts, options.out, options.tokens, plan, lambda: bool(stopped), hear)
    if options.json:
        print(json.dumps({"tokens": have, "stopped": bool(stopped)}))
    elif stopped:
        out.print(f"Stopped with {have} tokens in whole shards; the same command goes on from there.")
    else:
        out.print(f"{have} tokens in {options.out}.")
    return 1 if stopped else 0


def run_train_head(options: argparse.Namespace) -> int:
    """Features where they are missing, the course, the evaluation, the head with its papers."""
    import tempfile

    from spec_viz.models.heads import HEADS
    from spec_viz.models.weights import cache_folder
    from spec_viz.training.features import Corpus
    from spec_viz.training.precision import quick_dtype
    from spec_viz.training.recipe import Workshop
    from spec_viz.training.shards import CORPUS
    from spec_viz.training.smoke import toy_corpus, toy_target

    with tempfile.TemporaryDirectory() as folder:
        if options.smoke:
            place, loaded = Path(folder), toy_target()
            data, out_ = place / "corpus", options.out or place / options.name
            toy_corpus(loaded, data)
        else:
            dtype = str(quick_dtype()).removeprefix("torch.")
            place, loaded = options.work or cache_folder() / "training", load_model(DEFAULT, dtype)
            data, out_ = options.data or CORPUS, options.out or HEADS / options.name
        corpus = Corpus(data, place / "features", options.shards)
        return _train_head(options, Workshop(loaded, corpus), out_, place)


def _train_head(options: argparse.Namespace, shop: Workshop, out_: Path, place: Path) -> int:
    from dataclasses import replace

    from spec_viz.training.heads import RECIPES, train

    course = None
    if options.name in RECIPES:
        given = {name: getattr(options, name) for name in ("epochs", "rate", "seed")}
        course = replace(RECIPES[options.name].course, **{name: to for name, to in given.items() if to is not None})
    # Another course, or more of the corpus, does not go on from this one's checkpoint: each has its own folder.
    parts = (options.name, options.shards or "all", *((course.epochs, course.rate, course.seed) if course else ()))
    folder = place / "-".join(map(str, parts))
    bars: dict[str, Any] = {}

    def hear(what: str, done: int, total: int, line: Mapping[str, Any] | None) -> None:
        if what not in bars:
            # What an earlier run has done is no speed of this one.
            bars[what] = tqdm(total=total, initial=done, desc=what, file=sys.stderr, mininterval=pause(), miniters=1)
        bars[what].set_postfix(line or {}, refresh=False)
        bars[what].update(done - bars[what].n)

    with signals() as stopped:
        made = train(options.name, shop, out_, folder, course, lambda: bool(stopped), hear)
    for bar in bars.values():
        bar.close()
    if made is None:
        out.print("Stopped; the same command goes on from there.")
        return 1
    if options.json:
        print(json.dumps(made))
        return 0
    if "held_out" in made:
        show(options, _slots(made["held_out"]), "answers to held-out prompts, teacher-forced, by slot")
    out.print(f"{options.name} is in {out_}.")
    return 0


def _slots(held_out: Mapping[str, Mapping[str, list[float]]]) -> list[dict[str, Any]]:
    """A row a task: α and agreement by slot."""
    return [
        {"task": task}
        | {f"{kind} {slot}": rate for kind in ("alpha", "agree") for slot, rate in enumerate(rates[kind], 1)}
        for task, rates in held_out.items()
    ]


def run_train_measure(options: argparse.Namespace) -> int:
    """A table like that of `bench`, and the same numbers in each head's papers."""
    from spec_viz.training.measure import measure_live

    result = measure_live(
        load_model(DEFAULT),
        options.limit,
        gamma=options.gamma,
        max_new_tokens=options.max_new_tokens,
        repeats=options.repeats,
        progress=lambda items: tqdm(items, file=sys.stderr),
    )
    save(options.out, result, "timings")
    return show_bench(options, result)


def run_train_stats(options: argparse.Namespace) -> int:
    """A row a task and temperature."""
    from spec_viz.training.shards import summarise

    return show(options, summarise(options.data), "corpus")
