"""A Space on this machine: built as its builder does, started as it is started there, looked at as a visitor would.

    python -m tests.space.rehearsal [--python PATH] [--shots FOLDER]

The home cannot be written, the disk is empty, nothing but loopback is listened at. Nothing here is a Space's hardware:
times are this machine's, and no GPU is lent. Exit code 1 where a check failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page, expect, sync_playwright
from playwright.sync_api import Error as BrowserError
from rich.console import Console
from rich.table import Table

from spec_viz.engine.trace import loads
from spec_viz.ui.wording import LANGUAGES, words
from tests.browser.acts import drawn
from tests.browser.conftest import ELSEWHERE, FLAGS, HARMLESS
from tests.conftest import CHROMIUM
from tests.integration.ports import LOCAL, free_port
from tests.space import builder
from tests.space.lending import Service, lending

# A Space that takes longer is given up; a visitor who waits is lost long before.
MOST_START = 1800
USUAL_START = 120
PROMPT = "Name the days of the week, then name them again: Monday, Tuesday, Wednesday"
LESSON, STEP = "5_1_principles", "discard"
MOVES = 12
WIDTHS = (1440, 390)
FAULTS = (AssertionError, BrowserError, OSError, httpx.HTTPError, subprocess.SubprocessError)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table."""

    name: str
    is_good: bool
    seconds: float
    told: str


class Checking:
    """The body of a check; what it appends is told beside it. A fault ends the body, not the rehearsal."""

    def __init__(self, name: str, checks: list[Check]) -> None:
        self._name, self._checks = name, checks
        self._told: list[str] = []
        self._begun = time.monotonic()

    def __enter__(self) -> list[str]:
        return self._told

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, _: object) -> bool:
        if problem is not None and not isinstance(problem, FAULTS):
            return False
        said = getattr(problem, "stderr", None) or str(problem or "")
        fault = " ".join(str(said).split())[:300] or (type(problem).__name__ if problem else "")
        told = "; ".join([*self._told, *filter(None, [fault])])
        self._checks.append(Check(self._name, problem is None, time.monotonic() - self._begun, told))
        return True


@dataclass(slots=True)
class Report:
    """What was checked so far."""

    checks: list[Check] = field(default_factory=list)

    def check(self, name: str) -> Checking:
        """Run a body as a check of this name."""
        return Checking(name, self.checks)

    @property
    def is_good(self) -> bool:
        return all(check.is_good for check in self.checks)

    def table(self) -> Table:
        """All of it, for a person."""
        table = Table("", "check", "s", "what was seen", title="Rehearsal of a Space")
        for check in self.checks:
            mark = "[green]ok[/]" if check.is_good else "[red]NO[/]"
            table.add_row(mark, check.name, f"{check.seconds:.1f}", check.told.replace("[", "\\["))
        return table


@dataclass(slots=True)
class App:
    """The running page, its log, and the folders it was given."""

    process: subprocess.Popen[bytes]
    address: str
    log: Path
    home: Path
    scratch: Path
    begun: float

    def said(self) -> str:
        """Its log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def until_answered(self) -> None:
        """Wait for the first answer."""
        while time.monotonic() - self.begun < MOST_START:
            assert self.process.poll() is None, f"the app ended by itself: {self.said()[-400:]}"
            try:
                if httpx.get(self.address, timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.2)
        raise AssertionError("the app does not answer")


@contextmanager
def started(python: Path, place: Path, script: str = "app.py", **more: str) -> Iterator[App]:
    """The app, started in a copy of what is uploaded, as a Space starts it."""
    copy, scratch, home = place / "app", place / "tmp", place / "home"
    scratch.mkdir(exist_ok=True)
    # A file: nobody can write into it, root neither.
    home.touch()
    port = free_port()
    log = place / f"{Path(script).stem}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [python, script],
            cwd=copy,
            env=builder.variables(home, scratch, port) | {"PYTHONPATH": str(copy)} | more,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield App(process, f"http://{LOCAL}:{port}", log, home, scratch, time.monotonic())
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        # Its forked workers outlive it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# ---------------------------------------------------------------- what a visitor does


class Visitor:
    """A browser of a language and a width; what it must not see is collected."""

    def __init__(self, browser: Browser, language: str, width: int) -> None:
        self.wrong: list[str] = []
        self.words = words(language)
        self.language = language
        self.name = f"{language}-{width}"
        locale = {"vi": "vi-VN", "en": "en-GB"}.get(language, language)
        height = 900 if width > 600 else 844
        self._context = browser.new_context(locale=locale, viewport={"width": width, "height": height})
        self._context.route(ELSEWHERE, lambda route: route.abort())

    def open(self, address: str) -> Page:
        """A page, watched."""
        page = self._context.new_page()
        page.set_default_timeout(30_000)
        page.on("request", lambda asked: self._note(ELSEWHERE.match(asked.url) and f"asked {asked.url}"))
        page.on("pageerror", lambda error: self._note(f"error in the page: {error}"))
        page.on(
            "console", lambda said: self._note(said.type == "error" and not HARMLESS.search(said.text) and said.text)
        )
        page.goto(address)
        return page

    def _note(self, what: object) -> None:
        if what:
            self.wrong.append(str(what))


def is_ready(page: Page) -> bool:
    """Whether the page lets its visitor run something."""
    return page.locator(".sv-run").get_attribute("aria-disabled") == "false"


# Keeps, in the page, every sentence that is said of the model, with the highest number in it.
WATCH = """
() => {
  window.said = {};
  const note = () => {
    const text = document.querySelector('.sv-state').innerText.split('\\n')[0];
    window.said[text.replace(/[0-9]+/g, 'N')] = text;
  };
  new MutationObserver(note).observe(document.querySelector('.sv-state'),
    { childList: true, subtree: true, characterData: true });
  note();
}
"""


def wait_until_ready(page: Page, begun: float) -> list[str]:
    """Wait until the page lets its visitor run something; what WATCH has kept there."""
    while time.monotonic() - begun < MOST_START:
        if is_ready(page):
            said: dict[str, str] = page.evaluate("window.said")
            return list(said.values())
        page.wait_for_timeout(200)
    raise AssertionError(f"the model is not ready: {page.evaluate('window.said')}")


def run_once(page: Page, visitor: Visitor) -> str:
    """Ask for a run, wait for its end, and count what came."""
    page.get_by_label(visitor.words("control.prompt")).fill(PROMPT)
    page.get_by_role("button", name=visitor.words("control.run"), exact=True).click()
    expect(page.locator(".sv-board-finish")).to_have_text(
        re.compile("|".join(re.escape(visitor.words(f"board.finish.{how}")) for how in ("length", "eos"))),
        timeout=120_000,
    )
    expect(page.locator(".sv-board-badge")).to_contain_text(visitor.words("shell.badge.measured"))
    with page.expect_download() as download:
        page.get_by_role("button", name=visitor.words("shell.export")).click()
    (trace, *_) = loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert trace.meta["prompt_text"] == PROMPT
    return f"{len(trace.output)} tokens in {len(trace.rounds)} rounds on {trace.meta['device']}"


def play_lesson(page: Page) -> str:
    """Move the figure on by keyboard until it has drawn more tiles."""
    title = page.locator(".sv-l-title")
    expect(title).to_be_visible()
    tiles = page.locator(".sv-rows .sv-tile:not(.sv-tile--hidden):visible")
    expect(tiles.first).to_be_visible()
    name = title.inner_text()
    page.keyboard.press("Home")
    before = tiles.count()
    for _ in range(MOVES):
        page.keyboard.press("ArrowRight")
        if tiles.count() > before:
            expect(title).to_have_text(name)
            return f"{name}: {before} tiles, then {tiles.count()}"
    raise AssertionError(f"{MOVES} keys draw nothing more than {before} tiles")


# ---------------------------------------------------------------- the rehearsal


def rehearse(python: builder.Python, shots: Path, report: Report) -> None:
    """All checks, in the order in which a Space meets them."""
    with report.check("what is uploaded") as told:
        files = builder.uploaded()
        large = [str(path) for path in files if (builder.ROOT / path).stat().st_size > builder.MOST_BYTES]
        assert not large, f"over {builder.MOST_BYTES // 1_000_000} MB: {large}"
        told.append(f"{len(files)} files, the largest below {builder.MOST_BYTES // 1_000_000} MB")
    inside: Path | None = None
    with report.check(f"the builder's environment, Python {python.name}") as told:
        inside, was_made = builder.build(python)
        told.append("made" if was_made else "kept from before")
        versions = "import gradio, pydantic, torch; print(torch.__version__, gradio.__version__, pydantic.VERSION)"
        said = subprocess.run([inside, "-c", versions], capture_output=True, text=True, check=True, env=_bare())
        told.append("torch {}, gradio {}, pydantic {}".format(*said.stdout.split()))
    if not python.is_wanted():
        with report.check(f"the install plan of Python {builder.front()['python_version']}") as told:
            found = builder.plan(inside or Path(sys.executable))
            told.append(f"{len(found)} packages; torch {found['torch']}, pydantic {found['pydantic']}")
    if inside is None:
        return
    with tempfile.TemporaryDirectory(prefix="specviz-space-") as folder:
        place = Path(folder)
        (place / "app").mkdir()
        builder.upload(place / "app")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            with started(inside, place, SPECVIZ_LANGUAGE="vi") as app:
                _visit(app, browser, shots, report)
            _borrow(inside, place, browser, shots, report)
            browser.close()


def _visit(app: App, browser: Browser, shots: Path, report: Report) -> None:
    with report.check("the page answers") as told:
        app.until_answered()
        took = time.monotonic() - app.begun
        assert took < USUAL_START, f"only after {took:.0f} s"
        told.append(f"{took:.1f} s after the start; a Space is given up after {MOST_START // 60} minutes")
    visitors = [Visitor(browser, language, width) for language in LANGUAGES for width in WIDTHS]
    first, page = visitors[0], None
    with report.check("a recorded run, before there is a model") as told:
        page = drawn(first.open(f"{app.address}/?lang={first.language}"))
        assert not is_ready(page), "the model was there already: the disk was not empty"
        page.evaluate(WATCH)
        page.screenshot(path=shots / "first.png")
    for visitor in visitors:
        with report.check(f"a lesson, before there is a model ({visitor.name})") as told:
            asked = f"{app.address}/?place=lessons&lesson={LESSON}&step={STEP}&lang={visitor.language}"
            lesson = visitor.open(asked)
            told.append(play_lesson(lesson))
            lesson.screenshot(path=shots / f"lesson-{visitor.name}.png")
            lesson.close()
    if page is None:
        return
    with report.check("the model is fetched and converted, and the page says how far") as told:
        said = wait_until_ready(page, app.begun)
        told.append(f"ready {time.monotonic() - app.begun:.0f} s after the start")
        told.append(f"said: {' | '.join(said)}")
        heard = {re.sub(r"[0-9]+", "N", each) for each in said}
        download, convert = (first.words(f"error.stage_{stage}", percent="N") for stage in ("download", "convert"))
        assert convert in heard, f"never said: {convert}"
        if download not in heard:
            # Where the network is near, the 92 MB are there before a browser has the page.
            told.append("the download was over before the page came")
    for visitor in visitors:
        with report.check(f"a run ({visitor.name})") as told:
            live = visitor.open(f"{app.address}/?lang={visitor.language}&preset=&max_new_tokens=48")
            expect(live.locator(".sv-run")).to_have_attribute("aria-disabled", "false")
            told.append(run_once(live, visitor))
            live.evaluate("window.scrollTo(0, 0)")
            live.screenshot(path=shots / f"run-{visitor.name}.png")
            live.close()
    with report.check("a visitor of another language gets the host's") as told:
        other = Visitor(browser, "fr-FR", WIDTHS[0])
        expect(other.open(app.address).locator("html")).to_have_attribute("lang", "vi")
        told.append("SPECVIZ_LANGUAGE=vi, a French browser")
    with report.check("nothing failed in a browser, nobody else was asked"):
        assert not (wrong := [each for visitor in visitors for each in visitor.wrong]), wrong
    with report.check("a public host without a list asks no servers of vLLM") as told:
        mode = page.evaluate("JSON.parse(document.getElementById('sv-boot').textContent).served.mode")
        assert mode == "off", mode
        told.append(f"gate: {mode}")
    _ask(app, report)
    with report.check("it ends when it is told to") as told:
        app.process.terminate()
        told.append(f"exit code {app.process.wait(30)}")


def _ask(app: App, report: Report) -> None:
    with report.check("no second server renders pages (GRADIO_SSR_MODE)") as told:
        children = Path(f"/proc/{app.process.pid}/task/{app.process.pid}/children")
        names = [Path(f"/proc/{each}/comm").read_text().strip() for each in children.read_text().split()]
        assert "node" not in names, names
        told.append(f"children: {', '.join(names) or 'none'}")
    with report.check("behind the hub's own address") as told:
        host = {"Host": "somebody-specviz.hf.space", "X-Forwarded-Proto": "https", "X-Forwarded-Host": ""}
        host["X-Forwarded-Host"] = host["Host"]
        page = httpx.get(app.address, headers=host, timeout=20)
        assert page.status_code == 200, page.status_code
        root = httpx.get(f"{app.address}/config", headers=host, timeout=20).json()["root"]
        assert root == f"https://{host['Host']}", root
        told.append(f"root {root}")
    with report.check("nobody skips the line") as told:
        answer = httpx.post(f"{app.address}/gradio_api/run/run", json={"data": []}, timeout=20)
        assert answer.status_code >= 400, answer.status_code
        told.append(f"a direct call gets {answer.status_code}")
    with report.check("nothing is written at home, caches are where the log says"):
        assert app.home.stat().st_size == 0
        (moved,) = app.scratch.glob("specviz-*")
        assert str(moved) in app.said(), app.said()[:400]
        assert any(moved.rglob("model.safetensors")), list(moved.rglob("*"))[:10]
    with report.check("the log tells no prompt and no fault") as told:
        said = app.said()
        assert PROMPT not in said
        # Gradio leaves event loops to the collector, which complains of them on Python 3.12.
        faults = [each for each in said.split("Exception ignored in: ")[1:] if "BaseEventLoop.__del__" not in each[:60]]
        faults += ["Traceback"] * ("Traceback" in said.split("Exception ignored in: ")[0])
        assert not faults, faults[0][:400]
        told.append(f"{len(said.splitlines())} lines")


def _borrow(python: Path, place: Path, browser: Browser, shots: Path, report: Report) -> None:
    """The same under the package that ZeroGPU's builder brings; only the service that lends is a stand-in."""
    home = place / "zero-home"
    home.mkdir()
    (cache,) = (place / "tmp").glob("specviz-*/specviz")
    more = {"HOME": str(home), "SPECVIZ_CACHE": str(cache), "SPACES_ZERO_GPU": "true"}
    with report.check("ZeroGPU: the model is put on the GPU that is not there yet") as told:
        code = (
            "import spaces; from spec_viz.models.load import load; m = load('smollm2-135m'); w = m.model.lm_head.weight"
        )
        code += "; print(m.device, w.device, m.device_name)"
        env = builder.variables(home, place / "tmp", free_port()) | more | {"SPACES_ZERO_DEVICE_API_URL": "http://none"}
        done = subprocess.run(
            [python, "-c", code], cwd=place / "app", env=env, capture_output=True, text=True, check=False
        )
        if "NoneType" in done.stderr and "static.py" in done.stderr:
            told.append("not tried: this torch was built without CUDA, which the package needs")
        else:
            assert done.returncode == 0, done.stderr[-300:]
            assert done.stdout.startswith("cuda cuda:0 "), done.stdout
            told.append(done.stdout.strip())
    with lending() as (service, loans):
        more |= {"SPACES_ZERO_DEVICE_API_URL": service, "SPECVIZ_DEVICE": "cpu"}
        with started(python, place, str(Path(__file__).with_name("zero_app.py")), **more) as app:
            _visit_zero(app, loans, browser, shots, report)


def _visit_zero(app: App, loans: Service, browser: Browser, shots: Path, report: Report) -> None:
    visitor = Visitor(browser, "vi", WIDTHS[0])
    page: Page | None = None
    with report.check("ZeroGPU: the page opens with its model") as told:
        app.until_answered()
        page = visitor.open(f"{app.address}/?lang=vi&preset=&max_new_tokens=48")
        expect(page.locator(".sv-run")).to_have_attribute("aria-disabled", "false")
        assert loans.asked == ["/startup-report"], loans.asked
        told.append(f"{time.monotonic() - app.begun:.1f} s after the start; nothing is borrowed by looking")
    if page is None:
        return
    with report.check("ZeroGPU: a run in a forked process") as told:
        told.append(run_once(page, visitor))
        assert loans.asked[1:] == ["/schedule", "/allow", "/release"], loans.asked
        told.append(f"{loans.seconds[-1]} s were asked for")
    with report.check("ZeroGPU: Stop reaches it, what was made stays") as told:
        address = f"{app.address}/?lang=vi&preset=&max_new_tokens=256&drafter=none&chat=0"
        page = drawn(visitor.open(address))
        page.get_by_label(visitor.words("control.prompt")).fill(PROMPT)
        page.get_by_role("button", name=visitor.words("control.run"), exact=True).click()
        expect(page.locator(".sv-board-badge")).to_contain_text(visitor.words("shell.badge.measured"))
        page.get_by_role("button", name=visitor.words("control.stop"), exact=True).click()
        expect(page.locator(".sv-board-finish")).to_have_text(visitor.words("board.finish.stopped"))
        told.append(page.locator(".sv-board-counter").inner_text())
    with report.check("ZeroGPU: without quota a sentence, and recorded runs go on") as told:
        loans.is_spent = True
        page.get_by_role("button", name=visitor.words("control.run"), exact=True).click()
        expect(page.locator(".sv-alert")).to_have_text(visitor.words("error.gpu_quota"))
        page.screenshot(path=shots / "zero-quota.png")
        drawn(visitor.open(f"{app.address}/?lang=vi"))
        told.append("error.gpu_quota")
    with report.check("ZeroGPU: nothing failed in the browser, nobody else was asked"):
        assert not visitor.wrong, visitor.wrong


def _bare() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "HOME": tempfile.gettempdir()}


def main() -> int:
    """Rehearse, show the table."""
    parser = argparse.ArgumentParser(prog="tests.space.rehearsal", description=__doc__)
    parser.add_argument(
        "--python", type=Path, help="the interpreter to build with; else the README's version is looked for"
    )
    parser.add_argument("--shots", type=Path, help="where screenshots go; else nowhere")
    options = parser.parse_args()
    console = Console()
    if CHROMIUM is None:
        console.print("No Chromium on this machine: apt-get install chromium", style="red")
        return 1
    python = builder.find_python(options.python)
    wanted = builder.front()["python_version"]
    if not python.is_wanted():
        console.print(f"NO PYTHON {wanted} HERE: this ran on {python.name}. Give one with --python.", style="bold red")
    shots = options.shots or Path(tempfile.mkdtemp(prefix="specviz-shots-"))
    shots.mkdir(parents=True, exist_ok=True)
    report = Report()
    try:
        rehearse(python, shots, report)
    finally:
        console.print(report.table())
        if not options.shots:
            shutil.rmtree(shots, ignore_errors=True)
    console.print(f"Python {python.name}; no Space's hardware, no GPU.")
    return 0 if report.is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())
