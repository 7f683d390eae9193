/** The speedup formula with its three letters in hand. */

import { h, say } from '../dom.js';
import { makeKnob } from '../knob.js';
import { expectedTokens, roundCost, speedup, wrongExpectedTokens } from '../theory.js';
import { svg } from './draw.js';

const MOST_GAMMA = 12;
const KNOBS = Object.freeze([
  { name: 'alpha', sign: 'α', min: 0, max: 1, step: 0.01, digits: 2 },
  { name: 'gamma', sign: 'γ', min: 1, max: MOST_GAMMA, step: 1, digits: 0 },
  { name: 'c', sign: 'c', min: 0, max: 1, step: 0.01, digits: 2 },
]);

export function mountFormula(root, stage) {
  const { figure, ctx, keep, asks } = stage;
  for (const { name } of KNOBS) keep[name] ??= figure[name];
  const knobs = KNOBS.map(({ digits, ...knob }) =>
    makeKnob({
      ...knob,
      label: ctx.t(`lesson.formula.${knob.name}`),
      show: (value) => ctx.number(value, digits),
      write(value) {
        keep[knob.name] = value;
        draw();
      },
    }),
  );
  const filled = h('p', { class: 'sv-l-formula-filled' });
  const plot = h('div', { class: 'sv-l-plot' });
  const said = h('p', { class: 'sv-l-caption', role: 'status' });
  // What is asked stands in here.
  const answer = h('div', {}, filled, plot, said);
  root.append(
    formula(ctx),
    h('div', { class: 'sv-l-knobs' }, ...knobs.map((knob) => knob.element)),
    answer,
    h('p', { class: 'sv-l-about' }, ctx.badge('computed'), ' ', ctx.t('lesson.formula.source')),
  );

  function draw() {
    const { alpha, gamma, c } = keep;
    const tokens = expectedTokens(alpha, gamma);
    const cost = roundCost(gamma, c);
    const show = (value) => ctx.number(value, 2);
    knobs.forEach((knob, index) => knob.draw(keep[KNOBS[index].name]));
    filled.replaceChildren(
      h('span', { 'data-part': 'tau' }, ctx.t('lesson.formula.tokens', { tokens: show(tokens) })),
      ' ',
      h('span', { 'data-part': 'v' }, ctx.t('lesson.formula.cost', { cost: show(cost) })),
      ' ',
      h(
        'b',
        { 'data-part': 'speedup' },
        ctx.t('lesson.formula.speedup', { tokens: show(tokens), cost: show(cost), speedup: show(tokens / cost) }),
      ),
    );
    const curve = Array.from({ length: MOST_GAMMA }, (_, index) => speedup(alpha, index + 1, c));
    const best = curve.indexOf(Math.max(...curve)) + 1;
    const sentence = ctx.t(curve[best - 1] > 1 ? 'lesson.formula.best' : 'lesson.formula.never', {
      best,
      speedup: show(curve[best - 1]),
    });
    const wrong = figure.wrong ? curve.map((_, index) => wrongExpectedTokens(alpha, index + 1)) : [];
    const claim = wrong.length ? ctx.t('lesson.formula.wrong', { gamma, wrong: show(wrong[gamma - 1]) }) : '';
    const told = [sentence, claim].filter(Boolean).join(' ');
    plot.replaceChildren(drawCurve(curve, gamma, ctx, told, wrong));
    say(said, told);
  }

  draw();
  return {
    total: asks ? 1 : 0,
    first: 0,
    go(position) {
      answer.hidden = asks && position === 0;
    },
  };
}

function formula({ t }) {
  const letter = (name, sign) => h('i', { 'data-part': name }, sign);
  const above = h(
    'span',
    { class: 'sv-l-above', 'data-part': 'tau' },
    '1 − ',
    letter('alpha', 'α'),
    h('sup', {}, letter('gamma', 'γ'), ' + 1'),
  );
  const below = h('span', {}, '(1 − ', letter('alpha', 'α'), ') (', letter('gamma', 'γ'), letter('c', 'c'), ' + 1)');
  const fraction = h('span', { class: 'sv-l-fraction' }, above, below);
  return h(
    'p',
    { class: 'sv-l-formula', role: 'img', 'aria-label': t('lesson.formula.spoken') },
    h('span', { 'data-part': 'speedup' }, t('lesson.formula.name')),
    ' = ',
    fraction,
  );
}

/** Bars of the speedup by γ; `wrong` is what another formula claims, as crosses. */
function drawCurve(curve, gamma, ctx, label, wrong) {
  const [width, height, left, bottom] = [640, 228, 44, 52];
  const top = Math.max(...curve, wrong.length ? 5 : 1.5) * 1.12;
  const slot = (width - left - 8) / curve.length;
  const y = (value) => 8 + (height - bottom - 8) * (1 - value / top);
  const image = svg('svg', { viewBox: `0 0 ${width} ${height}`, class: 'sv-l-svg', role: 'img', 'aria-label': label });
  for (let value = 0; value <= top; value += top > 5 ? 2 : 1) {
    image.append(
      svg('line', {
        x1: left,
        x2: width - 8,
        y1: y(value),
        y2: y(value),
        class: value === 1 ? 'sv-l-straight' : 'sv-l-grid',
      }),
      svg('text', { x: left - 8, y: y(value) + 4, 'text-anchor': 'end' }, `${value}×`),
    );
  }
  curve.forEach((value, index) => {
    const x = left + slot * index;
    const chosen = index + 1 === gamma;
    image.append(
      svg('rect', {
        x: x + slot * 0.18,
        width: slot * 0.64,
        y: y(value),
        height: y(0) - y(value),
        class: chosen ? 'sv-l-column sv-l-column--chosen' : 'sv-l-column',
      }),
      svg(
        'text',
        { x: x + slot / 2, y: height - bottom + 21, 'text-anchor': 'middle', class: chosen ? 'sv-l-strong' : null },
        String(index + 1),
      ),
    );
    if (chosen)
      image.append(
        svg(
          'text',
          { x: x + slot / 2, y: y(value) - 4, 'text-anchor': 'middle', class: 'sv-l-strong' },
          ctx.number(value, 2),
        ),
      );
  });
  wrong.forEach((value, index) => {
    const at = { x: left + slot * (index + 0.5), y: y(value) + 6, 'text-anchor': 'middle', class: 'sv-l-wrong' };
    if (value <= top) image.append(svg('text', at, '✗'));
  });
  image.append(
    svg('text', { x: left + (width - left) / 2, y: height - 4, 'text-anchor': 'middle' }, ctx.t('lesson.formula.axis')),
  );
  return image;
}
