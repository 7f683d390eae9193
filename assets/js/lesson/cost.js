/** What a target pass over n tokens costs beside a pass over one: v(n), as measured on one machine. */

import { h } from '../dom.js';
import { svg } from './draw.js';

const WIDTH = 640;
const HEIGHT = 300;
const EDGE = { left: 44, right: 12, top: 16, bottom: 40 };

export function mountCost(root, stage) {
  const { figure, ctx, asks } = stage;
  const { result } = figure;
  const plot = h('div', { class: 'sv-l-plot' });
  const summary = h('p', { class: 'sv-l-summary' });
  const about = h('p', { class: 'sv-l-about' }, ctx.badge('recorded', result), ' ', conditionsOf(result, ctx));
  root.append(
    h('h2', { class: 'sv-l-figure-title' }, ctx.t('lesson.cost.title')),
    plot,
    key(ctx),
    summary,
    drafters(result, ctx),
    about,
  );
  let shown = !asks;
  const draw = () => {
    const most = result.v.at(-1);
    summary.textContent = shown
      ? ctx.t('lesson.cost.summary', { n: most.n, ratio: ctx.number(most.ratio, 2), ms: ctx.number(result.step_ms, 1) })
      : ctx.t('lesson.cost.hidden', { ms: ctx.number(result.step_ms, 1) });
    plot.replaceChildren(bars(result.v, shown, ctx, summary.textContent));
  };
  draw();
  return {
    total: asks ? 1 : 0,
    first: 0,
    go(position) {
      shown = !asks || position > 0;
      draw();
    },
  };
}

/** Bars of v(n) with their quartiles, and the line a pass would follow if n tokens cost n passes. */
function bars(points, shown, ctx, label) {
  const top = Math.max(...points.map((point) => point.high)) * 1.25;
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
  for (let value = 0; value <= top; value += top > 6 ? 2 : top > 2 ? 1 : 0.5) {
    image.append(
      svg('line', { x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(value), y2: y(value), class: 'sv-l-grid' }),
      svg(
        'text',
        { x: EDGE.left - 8, y: y(value) + 4, 'text-anchor': 'end' },
        `${ctx.number(value, value % 1 ? 1 : 0)}×`,
      ),
    );
  }
  const straight = points.map((point, index) => [x(index), point.n]).filter(([, n]) => n <= top);
  image.append(
    svg('polyline', { points: straight.map(([at, n]) => `${at},${y(n)}`).join(' '), class: 'sv-l-straight' }),
  );
  points.forEach((point, index) => {
    if (shown || index === 0) image.append(...bar(point, index));
    image.append(svg('text', { x: x(index), y: HEIGHT - EDGE.bottom + 18, 'text-anchor': 'middle' }, String(point.n)));
  });
  image.append(
    svg('text', { x: EDGE.left + inner.width / 2, y: HEIGHT - 4, 'text-anchor': 'middle' }, ctx.t('lesson.cost.axis')),
  );
  return image;

  function bar(point, index) {
    const words = ctx.t('lesson.cost.point', {
      n: point.n,
      ratio: ctx.number(point.ratio, 2),
      ms: ctx.number(point.ms, 1),
    });
    const column = svg('rect', {
      x: x(index) - slot * 0.32,
      width: slot * 0.64,
      y: y(point.ratio),
      height: y(0) - y(point.ratio),
      class: 'sv-l-column',
      'data-part': 'v',
    });
    column.append(svg('title', {}, words));
    const spread = svg('line', {
      x1: x(index),
      x2: x(index),
      y1: y(point.low),
      y2: y(point.high),
      class: 'sv-l-spread',
    });
    return [column, spread];
  }
}

function key({ t }) {
  const entry = (className, words) =>
    h('li', {}, h('span', { class: `sv-l-key ${className}`, 'aria-hidden': 'true' }), words);
  return h(
    'ul',
    { class: 'sv-l-keys' },
    entry('sv-l-key--column', t('lesson.cost.measured')),
    entry('sv-l-key--straight', t('lesson.cost.straight')),
  );
}

function drafters(result, ctx) {
  const rows = Object.entries(result.drafters ?? {});
  if (!rows.length) return '';
  return h(
    'ul',
    { class: 'sv-l-costs' },
    ...rows.map(([name, { c }]) =>
      h(
        'li',
        { 'data-part': 'c' },
        `${ctx.t('lesson.cost.drafter', { drafter: ctx.t(`drafter.${name}`), c: ctx.number(c, c < 0.01 ? 4 : 2) })}`,
      ),
    ),
  );
}

function conditionsOf({ conditions: { device_name: device, dtype, threads, context, repeats, created } }, { t }) {
  const parts = [
    device,
    dtype,
    threads && t('lesson.cost.threads', { threads }),
    context && t('lesson.cost.context', { context }),
    repeats && t('lesson.cost.repeats', { repeats }),
    created?.slice(0, 10),
  ];
  return parts.filter(Boolean).join(' · ');
}
