/** v(n) of this machine, measured on a click, and where its roofline bends beside machines that are known. */

import { h } from '../dom.js';
import { mountCost } from '../lesson/cost.js';
import { makeMeasure } from '../lesson/measure.js';
import { ridgeTokens } from '../theory.js';

/** A recording of the same measurement, to stand beside. */
const RECORDED = 'lessons/5_1_principles/traces/cost.json';
const BYTES = Object.freeze({ float32: 4, bfloat16: 2, float16: 2 });
/** Dense bf16 FLOP/s and bytes/s by the makers' data sheets (algorithms §10.1): peaks, so real ridges are lower. */
const KNOWN = Object.freeze([
  { name: 'H100 SXM', flops: 989e12, bandwidth: 3.35e12, bytes: 2 },
  { name: 'H200 SXM', flops: 989e12, bandwidth: 4.8e12, bytes: 2 },
  { name: 'A100 40 GB', flops: 312e12, bandwidth: 1.555e12, bytes: 2 },
  { name: 'A100 80 GB', flops: 312e12, bandwidth: 2.039e12, bytes: 2 },
]);

// Tokens in the pass of a chain that nobody would call long: four drafts and the one before them.
const SHORT = 5;

/** changed(result) hears a measurement, and null when it is put away. */
export function mountMachine(root, host, ctx, { measured, changed }) {
  const { t } = ctx;
  const figure = h('div', { class: 'sv-l-figure sv-l-figure--cost' });
  const below = h('div');
  const ridges = h('div', { class: 'sv-lab-ridges' });
  root.append(figure, below, ridges);
  let measure = null;
  let over = false;
  load();

  async function load() {
    let recorded = null;
    try {
      const answer = await fetch(`${host.boot.static}${RECORDED}`);
      if (!answer.ok) throw new Error(`${RECORDED}: ${answer.status}`);
      recorded = await answer.json();
    } catch (error) {
      console.error(error);
      root.append(h('p', { class: 'sv-alert' }, t('lab.machine.missing')));
      return;
    }
    if (over) return;
    const view = mountCost(figure, { figure: { result: recorded }, ctx, asks: false });
    const shown = {
      show(result) {
        view.show(result);
        drawRidges(result, 'measured');
        changed(result);
      },
      back() {
        view.back();
        drawRidges(recorded, 'recorded');
        changed(null);
      },
    };
    measure = makeMeasure(shown, recorded, { host, ctx });
    below.append(measure.element);
    if (measured) {
      view.show(measured);
      drawRidges(measured, 'measured');
    } else drawRidges(recorded, 'recorded');
  }

  function drawRidges(result, origin) {
    const own = ridgeOf(result, knownOf(host.boot).find((target) => target.name === result.conditions.target) ?? host.boot.targets[0]);
    const rows = KNOWN.map((each) => ({ name: each.name, tokens: ridgeTokens(each.flops, each.bandwidth, each.bytes), origin: 'computed' }));
    if (own.tokens !== null) rows.push({ name: t(`lab.ridge.${origin}`), tokens: own.tokens, origin, own: true });
    rows.sort((a, b) => a.tokens - b.tokens);
    const top = Math.max(...rows.map((row) => row.tokens));
    ridges.replaceChildren(
      h('h3', { class: 'sv-lab-h3' }, t('lab.ridge')),
      h('p', { class: 'sv-help' }, t('lab.ridge.help')),
      h('ol', { class: 'sv-lab-steps', 'aria-label': t('lab.ridge') }, ...rows.map((row) => drawRow(row, top, result))),
      h('p', { class: 'sv-lab-why' }, own.tokens === null ? t('lab.ridge.flat') : `${t('lab.ridge.said', spoken(own))} ${t(`lab.ridge.${own.tokens > SHORT ? 'below' : 'above'}`)}`),
      // Recordings made before it was counted have none.
      ...(result.roofline ? [h('p', { class: 'sv-lab-why' }, t('lab.ridge.reached', reached(result.roofline)))] : []),
      h('p', { class: 'sv-l-about' }, t('lab.ridge.source')),
    );
  }

  const spoken = ({ tokens, bandwidth, flops }) => ({
    tokens: ctx.number(tokens, 0),
    reads: ctx.number(bandwidth / 1e9, 0),
    computes: ctx.number(flops / 1e9, 0),
  });

  const reached = ({ bytes_per_pass: bytes, flops_per_token: flops, bytes_per_second: reads, flops_per_second: computes, knee }) => ({
    bytes: ctx.number(bytes / 1e6, 0),
    flops: ctx.number(flops / 1e6, 0),
    reads: ctx.number(reads / 1e9, 1),
    computes: ctx.number(computes / 1e9, 1),
    knee: ctx.number(knee, 1),
  });

  function drawRow({ name, tokens, origin, own }, top, result) {
    const fill = h('i', { class: own ? 'sv-lab-bar sv-lab-bar--measured' : 'sv-lab-bar' });
    fill.style.width = `${(tokens / top) * 100}%`;
    return h(
      'li',
      {},
      h('span', { class: 'sv-lab-step' }, name, ' '),
      h('span', { class: 'sv-lab-track', 'aria-hidden': 'true' }, fill),
      h('span', { class: 'sv-lab-amount' }, ctx.number(tokens, 0)),
      ctx.badge(origin, own ? result : null),
    );
  }

  return {
    take: (text) => measure?.take(text),
    stop() {
      over = true;
      measure?.stop();
    },
  };
}

/**
 * Where the line through the measured passes says that arithmetic takes as long as reading: a pass takes
 * `reading` + n · `token`. Bytes and FLOP/s are those that would take so long; `tokens` is null where nothing rises.
 */
function ridgeOf({ v, step_ms: ms, conditions }, { parameters }) {
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [n, times] = [v.map((point) => point.n), v.map((point) => (point.ratio * ms) / 1000)];
  const [middle, time] = [mean(n), mean(times)];
  const sum = (value) => n.reduce((total, each, index) => total + value(each - middle, times[index] - time), 0);
  const token = sum((x, y) => x * y) / sum((x) => x * x); // the slope of least squares
  const reading = time - token * middle;
  if (token <= 0 || reading <= 0) return { tokens: null };
  const bytes = BYTES[conditions.dtype] ?? 4;
  const [flops, bandwidth] = [(2 * parameters) / token, (parameters * bytes) / reading];
  return { flops, bandwidth, tokens: ridgeTokens(flops, bandwidth, bytes) };
}

/** The target of the page, and the one that its records were made on. */
function knownOf({ targets, recorded }) {
  return [...targets, recorded];
}
