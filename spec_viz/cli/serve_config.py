"""`serve-config`: a checked vLLM command with every key explained, or what speaks against it and would fix it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from spec_viz.cli.terminal import command, err, known, out

if TYPE_CHECKING:
    from spec_viz.serving.config.builder import Built
    from spec_viz.serving.config.choice import Finding
    from spec_viz.serving.config.memory import Memory
    from spec_viz.ui.wording import Words

FORMS = ("bash", "powershell", "yaml", "python", "docker", "docker-rocm", "request", "sglang", "tensorrt-llm")
# A form that asks for one maker's chips, where no machine is named.
MACHINES = {"docker-rocm": "amd-192"}
COLOURS = {"refuse": "red", "warn": "yellow", "note": "cyan"}


def add(commands: Any) -> None:
    """Offer `serve-config`."""
    config = command(commands, "serve-config", run_config, "a checked vLLM command, every key explained; runs nothing")
    config.add_argument("method", metavar="METHOD", help="baseline, ngram, suffix, draft_model, eagle3, mtp, dflash, …")
    config.add_argument("--target", default="", help="otherwise the first that the method has a drafter for")
    config.add_argument("--drafter", default="", help="otherwise the one known for the target")
    config.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of the JSON, a flag's name, a variable, or a request's key; an empty value takes a default away",
    )
    config.add_argument("--form", choices=FORMS, default="bash")
    config.add_argument(
        "--hardware", metavar="NAME", help="nvidia-24 otherwise; cpu, or a GPU by its GB: any other name gets the list"
    )
    config.add_argument("--version", default="0.32", help="of vLLM: 0.32 or 0.33")
    config.add_argument("--lang", choices=("en", "vi"), default="en")


def run_config(options: argparse.Namespace) -> int:
    """Print the form and its keys; the exit code is 1 where the configuration is refused."""
    from spec_viz.serving.config.builder import build
    from spec_viz.serving.config.tables import HARDWARE, VERSIONS
    from spec_viz.ui.serve import OPTIONS, VALUE, choice_of
    from spec_viz.ui.wording import words

    hardware = options.hardware or MACHINES.get(options.form, "nvidia-24")
    known("machine", [hardware], HARDWARE)
    known("version", [options.version], VERSIONS)
    pairs = [option.partition("=") for option in options.option]
    if bad := [name for name, equals, _ in pairs if not equals]:
        raise ValueError(f"--option takes KEY=VALUE, not {bad[0]}.")
    if len(pairs) > OPTIONS:
        raise ValueError(f"At most {OPTIONS} options; {len(pairs)} were given.")
    if long := [name for name, _, value in pairs if len(value) > VALUE]:
        raise ValueError(f"--option {long[0]}: a value has at most {VALUE} characters.")
    asked = {name: getattr(options, name) for name in ("method", "target", "drafter", "version")}
    typed = {name: value for name, _, value in pairs}
    built = build(choice_of({**asked, "hardware": hardware, "options": typed}))
    if options.json:
        print(json.dumps(asdict(built) | {"refused": built.refused}, ensure_ascii=False, indent=2))
    else:
        _print(built, options.form, words(options.lang))
    return 1 if built.refused else 0


def _print(built: Built, name: str, t: Words) -> None:
    for finding in built.findings:
        err.print(_sentence(finding, t), style=COLOURS[finding.severity], markup=False)
    if built.refused:
        return
    form = next((form for form in built.forms if form.name == name), None)
    if form is None:
        there = ", ".join(form.name for form in built.forms)
        raise ValueError(f"There is no form {name} for this choice; there are {there}.")
    # Not through the console, which would break lines that are copied.
    print(form.text)
    shown = dict.fromkeys(piece.key for piece in form.pieces if piece.key)
    for row in built.explained:
        if row.name in shown:
            usual = " " + t("serve.usual", usual=row.usual) if row.usual else ""
            out.print(f"{row.name}: {t(f'serve.key.{row.name}')}{usual}", markup=False)
    _print_memory(built.memory, t)


def _print_memory(memory: Memory | None, t: Words) -> None:
    """Whether it fits, as the page says it; what does not is said where the findings are."""
    if memory is None:
        out.print(t("serve.memory.unknown"), markup=False)
        return
    key = {None: "cpu", True: "fits", False: "full"}[memory.fits]
    room = "" if memory.room is None else _gigabytes(memory.room, t)
    sentence = t(f"serve.memory.{key}", total=_gigabytes(memory.total, t), room=room)
    if memory.fits is False:
        err.print(sentence, style=COLOURS["warn"], markup=False)
    else:
        out.print(sentence, markup=False)


def _gigabytes(value: float, t: Words) -> str:
    return f"{value:.1f}".replace(".", "," if t.language == "vi" else ".")


def _sentence(finding: Finding, t: Words) -> str:
    """A finding with its fix, in one paragraph."""
    said = f"{t(f'serve.severity.{finding.severity}')}: {t(f'serve.say.{finding.name}', **finding.args)}"
    return said + (f" → {t(f'serve.fix.{finding.fix.name}', **finding.fix.args)}" if finding.fix else "")
