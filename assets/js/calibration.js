/** How likely drafts were said to survive, against how many did: of a run, and of the held-out answers of its head. */

import { h } from './dom.js';
import { binsOf } from './reasons.js';

const SVG = 'http://www.w3.org/2000/svg';
const SIDE = 300;
const EDGE = { left: 46, right: 14, top: 12, bottom: 44 };
const BINS = 5;
const LIKELY = 1.96; // 95 % of a normal law lie within as many standard deviations

/**
 * The picture of a run's rounds, or null where no survival is told. `held`: [said, kept share, drafts] rows of the
 * head's held-out answers, or null. `shown` = false draws the axes alone. ctx = {t, lang, number(value, digits)}.
 */
export function drawCalibration(rounds, held, ctx, { shown = true } = {}) {
  const bins = binsOf(rounds, BINS);
  if (!bins.length) return null;
  const { t, number } = ctx;
  const drafts = bins.reduce((sum, bin) => sum + bin.drafts, 0);
  const kept = bins.reduce((sum, bin) => sum + bin.kept, 0);
  const said = bins.reduce((sum, bin) => sum + bin.said * bin.drafts, 0) / drafts;
  const summary = t('calibration.said', { drafts, said: number(said * 100, 0), kept, share: number((kept / drafts) * 100, 0) });
  const plot = h('div', { class: 'sv-calibration-plot' }, axes(bins, shown ? held : null, shown, ctx, shown ? `${t('calibration.title')}. ${summary}` : t('calibration.title')));
  const box = h('figure', { class: 'sv-calibration' }, h('figcaption', {}, t('calibration.caption')), plot);
  if (!shown) return box;
  box.append(key(held, t), h('p', { class: 'sv-slots-said' }, summary), table(bins, ctx));
  if (held) box.append(h('p', { class: 'sv-inspector-note' }, t('calibration.held', { drafts: number(held.reduce((sum, row) => sum + row[2], 0), 0) })));
  return box;
}

/** The held-out rows that come with a drafter's head; null where its papers tell none. */
export function heldOut(boot, drafter) {
  const rows = boot.drafters?.find((each) => each.name === drafter)?.provenance?.calibration;
  return Array.isArray(rows) && rows.length ? rows : null;
}

/** Where the true share may lie after so few drafts: Wilson's interval, [low, high]. */
export function interval(kept, drafts) {
  const square = LIKELY ** 2;
  const middle = (kept + square / 2) / (drafts + square);
  const reach = (LIKELY / (drafts + square)) * Math.sqrt((kept * (drafts - kept)) / drafts + square / 4);
  return [Math.max(middle - reach, 0), Math.min(middle + reach, 1)];
}

function axes(bins, held, shown, { t, number }, label) {
  const inner = { x: SIDE - EDGE.left - EDGE.right, y: SIDE - EDGE.top - EDGE.bottom };
  const x = (share) => EDGE.left + share * inner.x;
  const y = (share) => EDGE.top + (1 - share) * inner.y;
  const canvas = shape('svg', { viewBox: `0 0 ${SIDE} ${SIDE}`, role: 'img', 'aria-label': label, class: 'sv-calibration-svg' });
  for (const share of [0, 0.5, 1]) {
    canvas.append(
      shape('line', { x1: x(0), x2: x(1), y1: y(share), y2: y(share), class: 'sv-calibration-grid' }),
      text(x(0) - 8, y(share) + 4, `${number(share * 100, 0)} %`, 'end'),
      text(x(share), y(0) + 18, `${number(share * 100, 0)} %`, 'middle'),
    );
  }
  canvas.append(
    text(x(0.5), SIDE - 6, t('calibration.axis.said'), 'middle'),
    shape('line', { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: 'sv-calibration-even' }),
  );
  if (held) canvas.append(shape('polyline', { points: held.map(([said, kept]) => `${x(said)},${y(kept)}`).join(' '), class: 'sv-calibration-held' }));
  if (!shown) return canvas;
  for (const bin of bins) {
    const [low, high] = interval(bin.kept, bin.drafts);
    canvas.append(
      shape('line', { x1: x(bin.said), x2: x(bin.said), y1: y(low), y2: y(high), class: 'sv-calibration-reach' }),
      shape('circle', { cx: x(bin.said), cy: y(bin.kept / bin.drafts), r: 5, class: 'sv-calibration-dot' }),
    );
  }
  return canvas;
}

function key(held, t) {
  const names = ['run', ...(held ? ['held'] : []), 'even'];
  return h('p', { class: 'sv-grown-key' }, ...names.map((name) =>
    h('span', {}, h('span', { class: `sv-calibration-swatch sv-calibration-swatch--${name}`, 'aria-hidden': 'true' }), ' ', t(`calibration.key.${name}`))));
}

function table(bins, { t, number }) {
  const head = ['bin', 'said', 'kept'].map((name) => h('th', { scope: 'col' }, t(`calibration.table.${name}`)));
  const rows = bins.map(({ from, to, said, kept, drafts }) =>
    h('tr', {},
      h('th', { scope: 'row' }, `${number(from * 100, 0)}–${number(to * 100, 0)} %`),
      h('td', {}, `${number(said * 100, 0)} %`),
      h('td', {}, `${kept} / ${drafts} = ${number((kept / drafts) * 100, 0)} %`)));
  return h('table', { class: 'sv-calibration-table' }, h('thead', {}, h('tr', {}, ...head)), h('tbody', {}, ...rows));
}

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key_, value] of Object.entries(attributes)) element.setAttribute(key_, value);
  return element;
}

function text(x, y, said, anchor) {
  const element = shape('text', { x, y, 'text-anchor': anchor });
  element.textContent = said;
  return element;
}
