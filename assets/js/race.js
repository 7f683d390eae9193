/** Speculative decoding beside plain decoding on one wall-clock axis. Nothing moves until the visitor asks. */

import { isLossy, ruleTitle } from './rule.js';
import { make, number } from './tile.js';
import { pieces } from './trace.js';

const SHORTEST = 2000; // ms that a played race lasts at least, and at most
const LONGEST = 8000;
const TICKS = 4;
const EVEN = 0.05; // closer than this is called a draw; the same as in spec_viz/ui/view.py

export function mountRace(root, ctx) {
  root.classList.add('sv-race');
  const play = make('button', 'sv-race-play');
  play.type = 'button';
  const pace = make('span', 'sv-race-note');
  pace.dataset.screen = 'only';
  const head = make('div', 'sv-panel-head');
  head.append(play, pace);
  const lanes = make('div', '');
  const axis = make('div', 'sv-race-axis');
  axis.setAttribute('aria-hidden', 'true');
  const verdict = make('p', 'sv-race-verdict');
  const note = make('p', 'sv-race-note');
  root.replaceChildren(head, lanes, axis, verdict, note);
  const calm = matchMedia('(prefers-reduced-motion: reduce)');
  let runs = [];
  let drawn = [];
  let frame = null;

  play.addEventListener('click', () => (frame === null ? start() : finish()));

  function draw() {
    stop();
    const timed = runs.filter((run) => run.total > 0);
    const over = timed.length === 2 && timed.every((run) => run.trace.finish !== null);
    head.hidden = !over || calm.matches;
    axis.hidden = !timed.length;
    const end = Math.max(...timed.map((run) => run.total), 1);
    drawn = timed.map((run) => drawLane(run, end));
    lanes.replaceChildren(...drawn.map((lane) => lane.element));
    drawAxis(end);
    drawn.forEach((lane) => showLane(lane, lane.run.total));
    verdict.textContent = over ? judged(timed) : '';
    note.textContent = remarks(timed, over);
    play.textContent = ctx.t('race.play');
    pace.textContent = over ? ctx.t('race.pace', { x: number(end / duration(end), ctx.lang(), 1) }) : '';
  }

  function remarks(timed, over) {
    if (!runs.length) return '';
    if (!timed.length) return ctx.t('race.unknown');
    if (runs.length < 2) return `${ctx.t('race.scale')} ${ctx.t('race.alone')}`;
    return over ? `${perToken(timed)} ${ctx.t('race.scale')}` : ctx.t('race.scale');
  }

  /** The drafter, and the rule where it is one that changes the text. */
  function speculative({ meta }) {
    const said = ctx.t('race.speculative', { drafter: ctx.t(`drafter.${meta.drafter}`) });
    return isLossy(meta.rule) ? `${said} · ${ruleTitle(meta.rule, ctx.t)}` : said;
  }

  function drawLane(run, end) {
    const element = make('div', 'sv-race-lane');
    const line = make('div', 'sv-race-name');
    const numbers = make('output', '');
    const name = run.baseline ? ctx.t('race.baseline') : speculative(run.trace);
    line.append(make('b', '', name), numbers);
    const track = make('div', 'sv-race-track');
    track.setAttribute('aria-hidden', 'true');
    const bar = make('div', 'sv-race-bar');
    const rounds = make('div', 'sv-race-rounds');
    run.rounds.forEach(({ ms, prefill }) => {
      const kind = prefill ? 'prefill' : run.baseline ? 'baseline' : 'speculative';
      const mark = make('span', `sv-race-round sv-race-round--${kind}`);
      mark.style.width = `${(ms / run.total) * 100}%`;
      rounds.append(mark);
    });
    bar.append(rounds);
    track.append(bar);
    const text = make('p', 'sv-race-text');
    element.append(line, track, text);
    return { element, run, end, bar, rounds, numbers, text };
  }

  /** The lane as it stood `ms` after the start. */
  function showLane(lane, ms) {
    const { run, end, bar, rounds, numbers, text } = lane;
    const now = Math.min(ms, run.total);
    bar.style.width = `${(now / end) * 100}%`;
    rounds.style.width = now > 0 ? `${(run.total / now) * 100}%` : '0';
    const done = run.rounds.filter((round) => round.until <= now + 1e-6).length;
    const tokens = done ? run.rounds[done - 1].tokens : 0;
    numbers.textContent = ctx.t('race.numbers', { s: number(now / 1000, ctx.lang()), tokens, rounds: done });
    text.textContent = tailOf(run.trace, tokens);
  }

  function drawAxis(end) {
    axis.replaceChildren(...Array.from({ length: TICKS + 1 }, (_, index) => {
      const share = index / TICKS;
      const tick = make('span', 'sv-race-tick', ctx.t('race.seconds', { s: number((end * share) / 1000, ctx.lang(), end < 4000 ? 2 : 1) }));
      tick.style.left = `${share * 100}%`;
      return tick;
    }));
  }

  function judged(timed) {
    const [fast, plain] = [timed.find((run) => !run.baseline), timed.find((run) => run.baseline)];
    if (!fast || !plain) return '';
    const ratio = plain.perToken / fast.perToken;
    const key = Math.abs(ratio - 1) < EVEN ? 'race.even' : ratio > 1 ? 'race.faster' : 'race.slower';
    const same = JSON.stringify(fast.trace.entries.map(({ id }) => id)) === JSON.stringify(plain.trace.entries.map(({ id }) => id));
    const differs = fast.trace.meta.temperature === 0 ? 'race.differs.greedy' : 'race.differs';
    return `${ctx.t(key, { x: number(ratio, ctx.lang()) })} ${ctx.t(same ? 'race.same' : differs)}`;
  }

  function perToken(timed) {
    const [fast, plain] = [timed.find((run) => !run.baseline), timed.find((run) => run.baseline)];
    if (!fast || !plain) return '';
    return ctx.t('race.per', { a: number(fast.perToken, ctx.lang(), 1), b: number(plain.perToken, ctx.lang(), 1) });
  }

  function start() {
    const end = Math.max(...drawn.map((lane) => lane.run.total));
    const scale = end / duration(end);
    const began = performance.now();
    play.textContent = ctx.t('race.pause');
    const tick = (now) => {
      const ms = (now - began) * scale;
      drawn.forEach((lane) => showLane(lane, ms));
      if (ms < end) frame = requestAnimationFrame(tick);
      else finish();
    };
    frame = requestAnimationFrame(tick);
  }

  function stop() {
    if (frame !== null) cancelAnimationFrame(frame);
    frame = null;
  }

  function finish() {
    stop();
    drawn.forEach((lane) => showLane(lane, lane.run.total));
    play.textContent = ctx.t('race.again');
  }

  calm.addEventListener('change', draw);
  return {
    /** Show the traces of a bundle; drawn again as rounds arrive. */
    show(bundle) {
      const traces = bundle?.traces ?? [];
      // Of several drafters the first one races; comparing them all is another panel's work.
      const plain = traces.find((trace) => trace.meta.drafter === 'none');
      const drafted = traces.find((trace) => trace !== plain);
      runs = traces.filter((trace) => trace === plain || trace === drafted).map(measure);
      draw();
    },
    play: start,
    setWords: draw,
    destroy() {
      stop();
      calm.removeEventListener('change', draw);
      root.replaceChildren();
    },
  };
}

/** {trace, baseline, total, perToken, rounds: [{ms, until, tokens, prefill}]}, times in ms; total null when unknown. */
function measure(trace) {
  let until = 0;
  let tokens = 0;
  const rounds = trace.rounds.map((round) => {
    until += round.total ?? 0;
    tokens += round.entries.length;
    return { ms: round.total ?? 0, until, tokens, prefill: round.prefill };
  });
  const known = trace.rounds.length > 0 && trace.rounds.every((round) => round.total !== null);
  const first = rounds.findLast((round) => round.prefill) ?? { until: 0, tokens: 0 };
  return {
    trace, rounds, baseline: trace.meta.drafter === 'none', total: known ? until : null,
    perToken: tokens > first.tokens ? (until - first.until) / (tokens - first.tokens) : null,
  };
}

function duration(ms) {
  return Math.min(Math.max(ms, SHORTEST), LONGEST);
}

/** The end of the first `count` tokens as one line. */
function tailOf(trace, count) {
  const tokens = trace.entries.slice(Math.max(count - 24, 0), count).map((entry) => trace.text(entry.id));
  const text = pieces(tokens).map((piece) => piece.text ?? '').join('').replace(/[\s\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+/g, ' ');
  const letters = [...text];
  return letters.length > 90 ? `…${letters.slice(-90).join('')}` : text;
}
