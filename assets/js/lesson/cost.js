/** What a target pass over n tokens costs beside a pass over one: v(n), as measured on one machine. */

import { h } from '../dom.js';
import { svg } from './draw.js';

const WIDTH = 640;
const HEIGHT = 320;
const EDGE = { left: 52, right: 12, top: 24, bottom: 56 };
// Lengths whose values are written out: with the longest above the bars, where there is room for a number, all of them
// in the table.
const LABELLED = new Set([4, 8, 16, 32, 64]);
const TABLED = new Set([1, 2, ...LABELLED]);

export function mountCost(root, stage) {
  const { figure, ctx, asks } = stage;
  const { result } = figure;
  const plot = h('div', { class: 'sv-l-plot' });
  const summary = h('p', { class: 'sv-l-summary' });
  const beside = h('div');
  const keys = h('div');
  const costs = h('div');
  root.append(
    h('h2', { class: 'sv-l-figure-title' }, ctx.t('lesson.cost.title')),
    plot,
    keys,
    summary,
    costs,
    beside,
    conditionsOf(result, 'recorded', ctx),
  );
  let shown = !asks;
  let live = null;
  const draw = () => {
    const most = result.v.at(-1);
    summary.textContent = shown
      ? ctx.t('lesson.cost.summary', { n: most.n, ratio: ctx.number(most.ratio, 2), ms: ctx.number(result.step_ms, 1) })
      : ctx.t('lesson.cost.hidden', { ms: ctx.number(result.step_ms, 1) });
    plot.replaceChildren(bars(result.v, live?.v ?? null, shown, ctx, summary.textContent));
    keys.replaceChildren(key(live !== null, ctx));
    costs.replaceChildren(drafters(result, shown, ctx));
    beside.replaceChildren(...(live ? [table(result, live, ctx), conditionsOf(live, 'live', ctx)] : []));
  };
  draw();
  return {
    total: asks ? 1 : 0,
    first: 0,
    go(position) {
      shown = !asks || position > 0;
      draw();
    },
    show(measured) {
      live = measured;
      draw();
    },
    back() {
      live = null;
      draw();
    },
  };
}

/**
 * Bars of v(n) with their quartiles, and the line a pass would follow if n tokens cost n passes. The axis does not
 * depend on what is shown, so that it gives no answer away.
 */
function bars(points, live, shown, ctx, label) {
  const all = [...points, ...(live ?? [])];
  const top = Math.max(Math.min(points.at(-1).n, 8), ...all.map((point) => point.high * 1.1));
  const inner = { width: WIDTH - EDGE.left - EDGE.right, height: HEIGHT - EDGE.top - EDGE.bottom };
  const slot = inner.width / points.length;
  const x = (index) => EDGE.left + slot * (index + 0.5);
  const y = (value) => EDGE.top + inner.height * (1 - Math.min(value, top) / top);
  const image = svg('svg', {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: 'img',
    'aria-label': `${ctx.t('lesson.cost.title')}. ${label}`,
    class: 'sv-l-svg',
  });
  for (let value = 0; value <= top; value += top > 4 ? 2 : 1) {
    image.append(
      svg('line', { x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(value), y2: y(value), class: 'sv-l-grid' }),
      svg('text', { x: EDGE.left - 8, y: y(value) + 5, 'text-anchor': 'end' }, `${ctx.number(value, 0)}×`),
    );
  }
  const straight = points.map((point, index) => [x(index), point.n]).filter(([, n]) => n <= top);
  image.append(
    svg('polyline', { points: straight.map(([at, n]) => `${at},${y(n)}`).join(' '), class: 'sv-l-straight' }),
  );
  points.forEach((point, index) => {
    if (shown || index === 0) {
      const wide = live ? 0.36 : 0.64;
      image.append(...bar(point, x(index) - (live ? 0.19 * slot : 0), wide, 'sv-l-column'));
      if (live) image.append(...bar(live[index], x(index) + 0.19 * slot, wide, 'sv-l-column sv-l-column--live'));
      else if (LABELLED.has(point.n) || index + 1 === points.length) image.append(value(point, index));
    }
    image.append(svg('text', { x: x(index), y: HEIGHT - EDGE.bottom + 22, 'text-anchor': 'middle' }, String(point.n)));
  });
  image.append(
    svg('text', { x: EDGE.left + inner.width / 2, y: HEIGHT - 8, 'text-anchor': 'middle' }, ctx.t('lesson.cost.axis')),
  );
  return image;

  function bar(point, middle, wide, className) {
    const words = ctx.t('lesson.cost.point', {
      n: point.n,
      ratio: ctx.number(point.ratio, 2),
      ms: ctx.number(point.ms, 1),
    });
    const column = svg('rect', {
      x: middle - (slot * wide) / 2,
      width: slot * wide,
      y: y(point.ratio),
      height: y(0) - y(point.ratio),
      class: className,
      'data-part': 'v',
    });
    column.append(svg('title', {}, words));
    const spread = svg('line', { x1: middle, x2: middle, y1: y(point.low), y2: y(point.high), class: 'sv-l-spread' });
    return [column, spread];
  }

  function value(point, index) {
    const at = { x: x(index), y: y(point.high) - 8, 'text-anchor': 'middle', class: 'sv-l-strong' };
    return svg('text', at, ctx.number(point.ratio, 2));
  }
}

function key(live, { t }) {
  const entry = (className, words) =>
    h('li', {}, h('span', { class: `sv-l-key ${className}`, 'aria-hidden': 'true' }), words);
  return h(
    'ul',
    { class: 'sv-l-keys' },
    entry('sv-l-key--column', t(live ? 'lesson.cost.recorded' : 'lesson.cost.measured')),
    live ? entry('sv-l-key--live', t('lesson.cost.here')) : null,
    entry('sv-l-key--straight', t('lesson.cost.straight')),
  );
}

/** The two measurements in numbers. */
function table(result, live, { t, number }) {
  const head = (name) => h('th', { scope: 'col' }, t(`lesson.cost.column.${name}`));
  const times = ({ ratio, ms }) => h('td', {}, t('lesson.cost.cell', { ratio: number(ratio, 2), ms: number(ms, 1) }));
  const rows = result.v.flatMap((point, index) =>
    TABLED.has(point.n)
      ? [h('tr', {}, h('th', { scope: 'row' }, String(point.n)), times(point), times(live.v[index]))]
      : [],
  );
  return h(
    'table',
    { class: 'sv-l-beside' },
    h('thead', {}, h('tr', {}, head('n'), head('recorded'), head('live'))),
    h('tbody', {}, ...rows),
  );
}

/** Each drafter's c; what may be the answer stands open until there has been a guess. */
function drafters(result, shown, ctx) {
  const rows = Object.entries(result.drafters ?? {});
  if (!rows.length) return '';
  return h(
    'ul',
    { class: 'sv-l-costs' },
    ...rows.map(([name, { c }]) =>
      h(
        'li',
        { 'data-part': 'c' },
        ctx.t('lesson.cost.drafter', {
          drafter: ctx.t(`drafter.${name}`),
          c: shown ? ctx.number(c, c < 0.01 ? 4 : 2) : '?',
        }),
      ),
    ),
  );
}

function conditionsOf(result, origin, ctx) {
  const { t } = ctx;
  const { device_name: device, dtype, threads, context, repeats, created } = result.conditions;
  const parts = [
    device,
    dtype,
    threads && t('lesson.cost.threads', { threads }),
    context && t('lesson.cost.context', { context }),
    repeats && t('lesson.cost.repeats', { repeats }),
    created?.slice(0, 10),
  ];
  return h('p', { class: 'sv-l-about' }, ctx.badge(origin, result), ' ', parts.filter(Boolean).join(' · '));
}
