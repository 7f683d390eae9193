"""vLLM's counters, read from text and as differences between two looks at a server that the test is."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from spec_viz.serving.counters import Counts, Scrape, between, parse, scrape
from spec_viz.serving.problems import ServerError

# As vLLM 0.32.0 writes them: HELP and TYPE lines, `_created` beside each counter, a histogram that ends in `_total`.
TEXT = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 1.0
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 48.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 12.0
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 64.0
vllm:generation_tokens_total{engine="1",model_name="m"} 6.0
# HELP vllm:iteration_tokens_total Histogram of number of tokens per engine_step.
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 118.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 11.0
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="m"} 12.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 12.0
# HELP vllm:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 0.5
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="m"} 2.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 2.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 2.0
"""
SPECULATION = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 11.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 4.0
# HELP vllm:spec_decode_num_drafts_created Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_created gauge
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.796007955e+09
# HELP vllm:spec_decode_num_draft_tokens_total Number of draft tokens.
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 44.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 16.0
# HELP vllm:spec_decode_num_accepted_tokens_total Number of accepted tokens.
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 11.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 5.0
# HELP vllm:spec_decode_num_accepted_tokens_per_pos_total Accepted tokens per draft position.
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 3.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 4.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 2.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="3"} 2.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 3.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="1"} 2.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="2"} 0.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="3"} 0.0
"""
BOTH = Counts(15, 60, 16, (7, 5, 2, 2))


def look(seconds: float = 0.0, generated: int = 0, answers: int = 0, speculation: Counts | None = None) -> Scrape:
    return Scrape(seconds, generated, 0, answers, speculation)


def test_counters_of_all_engines_are_added_and_neighbours_are_left_alone() -> None:
    assert parse(TEXT + SPECULATION, 7.0) == Scrape(7.0, 70, 60, 2, BOTH)


def test_a_server_that_does_not_speculate_has_no_such_counts() -> None:
    assert parse(TEXT, 0.0).speculation is None


def test_the_names_that_ray_gives_are_known_too() -> None:
    renamed = (TEXT + SPECULATION).replace("vllm:", "ray_vllm_")
    assert parse(renamed, 7.0) == parse(TEXT + SPECULATION, 7.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>not found</html>",
        "other_tokens_total 5.0\n",
        # Another program's counter of a like name is none of vLLM's.
        TEXT.replace("vllm:generation_tokens_total", "generation_tokens_total"),
        SPECULATION,
        TEXT + 'vllm:spec_decode_num_drafts_total{engine="0" 5.0\n',
        TEXT + SPECULATION.replace('position="3"', 'position="last"'),
        TEXT + SPECULATION.replace('position="3"', 'position="1000000000"'),
        TEXT + SPECULATION.replace(',position="3"', ""),
        TEXT.replace(" 64.0", " +Inf"),
        TEXT.replace(" 64.0", " NaN"),
    ],
)
def test_what_is_no_vllm_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(text, 0.0)


def test_rates_are_fractions_of_the_counts() -> None:
    assert BOTH.rate.value == 16 / 60
    assert BOTH.length.value == 31 / 15
    assert BOTH.draft_length.value == 4.0
    assert [ratio.value for ratio in BOTH.positions] == [7 / 15, 5 / 15, 2 / 15, 2 / 15]
    assert [ratio.value for ratio in BOTH.conditional] == [7 / 15, 5 / 7, 2 / 5, 1.0]
    assert Counts(0, 0, 0, ()).length.value is None


def test_a_window_is_the_difference_and_counters_that_appear_late_began_at_nothing() -> None:
    before, after = look(1.0, 100, 2, Counts(10, 40, 9, (6, 3))), look(3.0, 164, 3, Counts(30, 120, 39, (26, 10, 3)))
    window = between(before, after)
    assert (window.seconds, window.generated, window.answers) == (2.0, 64, 1)
    assert window.speculation == Counts(20, 80, 30, (20, 7, 3))
    assert window.throughput.value == 32.0
    # 64 tokens, one from a prefill; of the others 30 were kept drafts, so 33 steps.
    assert window.tau is not None
    assert window.tau.value == 63 / 33
    assert between(look(), after).speculation == after.speculation
    assert between(look(), look(1.0)).tau is None


@pytest.mark.parametrize(
    "after",
    [
        look(3.0, 50, 3, Counts(30, 120, 39, (26,))),
        look(3.0, 164, 3, Counts(30, 120, 5, (5,))),
        look(3.0, 164, 3, Counts(30, 120, 39, (1,))),
        look(3.0, 164, 3),
        look(0.5, 164, 3, Counts(30, 120, 39, (26,))),
    ],
)
def test_counters_that_fell_are_those_of_another_server(after: Scrape) -> None:
    with pytest.raises(ServerError) as told:
        between(look(1.0, 100, 2, Counts(10, 40, 9, (6,))), after)
    assert told.value.key == "error.server_restarted"


@contextmanager
def telling(answers: Sequence[tuple[int, str]]) -> Iterator[tuple[str, list[str]]]:
    """A server that gives these answers to /metrics, one after another, and the last one from then on."""
    left = list(answers)
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

        def do_GET(self) -> None:
            asked.append(self.path)
            status, text = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_look_asks_for_metrics_and_times_itself() -> None:
    with telling([(200, TEXT + SPECULATION)]) as (address, asked):
        first, second = scrape(f"{address}/"), scrape(address)
    assert asked == ["/metrics", "/metrics"]
    assert (first.speculation, first.generated) == (BOTH, 70)
    assert second.seconds > first.seconds


def test_servers_that_are_away_refuse_or_are_others_are_told_apart() -> None:
    cases: Mapping[str, Sequence[tuple[int, str]]] = {
        "error.server_said": [(404, "no")],
        "error.server_metrics": [(200, "up 1\n")],
    }
    for key, answers in cases.items():
        with telling(answers) as (address, _), pytest.raises(ServerError) as told:
            scrape(address)
        assert told.value.key == key
    for nowhere, key in (("http://127.0.0.1:9", "error.server_away"), ("http://[broken", "error.server_address")):
        with pytest.raises(ServerError) as told:
            scrape(nowhere)
        assert told.value.key == key


def test_watching_prints_differences_and_ends_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    from spec_viz.cli import main

    more = SPECULATION.replace("11.0", "21.0").replace(" 44.0", " 84.0").replace('"0"} 4.0', '"0"} 9.0')
    with telling([(200, TEXT + SPECULATION), (200, TEXT.replace(" 64.0", " 94.0") + more)]) as (address, asked):
        assert main(["serve-watch", address, "--every", "0.1", "--times", "2"]) == 0
    heading, first, second = capsys.readouterr().out.splitlines()
    assert len(asked) == 3
    assert heading.split()[:4] == ["seconds", "tokens", "tokens/s", "τ"]
    # 30 tokens, 10 of them kept drafts, in 20 steps; of the 10 steps with a draft 5 kept its first token.
    assert first.split()[1] == "30"
    assert first.split()[3:8] == ["1.5", "10", "2.0", "0.25", "0.500"]
    # Nothing happened in the second window, so there is nothing to divide by.
    assert second.split()[1:7] == ["0", "0.0", "–", "0", "–", "–"]


def test_watching_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    from spec_viz.cli import main

    assert main(["serve-watch", "http://127.0.0.1:9", "--times", "1"]) == 2
    assert "does not answer" in capsys.readouterr().err
    assert main(["serve-watch", "http://127.0.0.1:9", "--times", "0"]) == 2
    assert "--times" in capsys.readouterr().err
