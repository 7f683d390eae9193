/**
 * Bars and lines of a law that is counted beside the law it should follow, as the Lab and "see it break" draw them.
 */

import { h } from './dom.js';
import { svg } from './lesson/draw.js';

const TOKENS = 'ABCDEFGHIJKL';
export const ALARM = 0.001; // as FAMILY_WISE_ERROR in spec_viz/lab/law.py
export const FLOOR = 1e-12; // p-values below are drawn there
const SIZE = Object.freeze({ width: 460, height: 200, left: 52, right: 12, top: 12, bottom: 30 });

/**
 * Each token: the target's p, what was counted (`last`: a checkpoint), and the mark where the method's exact `law`
 * stands, where it is known.
 */
export function lawBars({ title, target, last = null, law = null }, words) {
  const { t } = words;
  const counted = last ? last.counts.map((count) => count / last.rounds) : target.map(() => 0);
  const top = Math.max(...target, ...counted, ...(law ?? [])) * 1.05;
  const wide = (value) => `${Math.min((value / top) * 100, 100)}%`;
  const line = (kind, value) => {
    const fill = h('span', { class: `sv-break-fill sv-break-fill--${kind}` });
    fill.style.width = wide(value);
    const track = h('span', { class: 'sv-break-track', 'aria-hidden': 'true' }, fill);
    return { track, value: h('span', { class: 'sv-break-value' }, h('span', { class: 'sv-hush' }, `${t(`break.bar.${kind}`)} `), words.number(value, 3)) };
  };
  const rows = target.map((chance, token) => {
    const [p, seen] = [line('p', chance), line('seen', counted[token])];
    if (law) {
      const mark = h('span', { class: 'sv-break-mark' });
      mark.style.left = wide(law[token]);
      seen.track.append(mark);
    }
    return h(
      'li',
      { class: 'sv-break-row' },
      h('b', { class: 'sv-break-token' }, TOKENS[token]),
      h('span', { class: 'sv-break-lines' }, p.track, p.value, seen.track, seen.value),
    );
  });
  const key = ['p', 'seen', ...(law ? ['law'] : [])].map((kind) =>
    h('li', {}, h('span', { class: `sv-break-swatch sv-break-swatch--${kind}`, 'aria-hidden': 'true' }), t(`break.bar.${kind}`)),
  );
  return [
    h('h2', { class: 'sv-break-h' }, title),
    h('ul', { class: 'sv-break-key' }, ...key),
    h('ol', { class: 'sv-break-rows' }, ...rows),
  ];
}

export function figure(title, drawing) {
  return h('figure', { class: 'sv-break-chart' }, h('figcaption', {}, title), drawing);
}

/** Lines over the number of rounds; `bar` is a level to watch. What it shows stands in the table too. */
export function lineChart({ lines, across, up, ticks, bar = null, words }) {
  const { width, height, left, right, top, bottom } = SIZE;
  const x = (value) => left + (value / across) * (width - left - right);
  const y = (value) => height - bottom - (Math.min(value, up) / up) * (height - top - bottom);
  const text = (attributes, content) => svg('text', { class: 'sv-break-tick', ...attributes }, content);
  const drawing = svg('svg', { viewBox: `0 0 ${width} ${height}`, class: 'sv-break-svg', 'aria-hidden': 'true' });
  for (const [value, label] of ticks) {
    drawing.append(
      svg('line', { class: 'sv-break-grid', x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      text({ x: left - 6, y: y(value) + 4, 'text-anchor': 'end' }, label),
    );
  }
  if (bar !== null) drawing.append(svg('line', { class: 'sv-break-alarm', x1: left, x2: width - right, y1: y(bar), y2: y(bar) }));
  for (const [share, anchor] of [[0, 'start'], [0.5, 'middle'], [1, 'end']])
    drawing.append(text({ x: x(across * share), y: height - 8, 'text-anchor': anchor }, words.number(Math.round(across * share), 0)));
  for (const { name, points } of lines)
    drawing.append(
      svg('polyline', { class: `sv-break-line sv-break-line--${name}`, points: points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(' ') }),
    );
  return drawing;
}

/** A p-value after "p": one too small to be told apart from none is only bounded. */
export function pText(value, words) {
  if (value < FLOOR) return `< 10⁻¹²`;
  return value < ALARM ? scientific(value, words) : words.number(value, 3);
}

/** 3,2·10⁻⁸ */
function scientific(value, words) {
  const power = Math.floor(Math.log10(value));
  const raised = [...String(power)].map((sign) => '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'['-0123456789'.indexOf(sign)]).join('');
  return `${words.number(value / 10 ** power, 1)}·10${raised}`;
}
