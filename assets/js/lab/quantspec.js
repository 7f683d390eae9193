/**
 * QuantSpec as a picture (arXiv 2502.10424): one KV cache of 8 bits a number, of which drafting reads the upper nibble
 * and the target both. Drawn, not measured.
 */

import { h } from '../dom.js';

const SPACE = 'http://www.w3.org/2000/svg';
// The picture is narrow, so that its letters stay readable on a phone.
const WIDTH = 360;
const HEIGHT = 286;
const CELL = 24;
const CELLS = 9;
const LEFT = 20;
const RECENT = 2; // newest tokens, which are not quantised yet

/** A figure with its title, picture and caption; `t` gives the words. */
export function quantspec(t) {
  const svg = draw('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': t('quantspec.summary'), style: 'display: block; width: 100%; max-width: 30rem; height: auto' });
  svg.append(...nibbles(t), ...readers(t));
  return h('figure', { class: 'sv-picture' }, h('p', { class: 'sv-picture-name', style: 'text-align: left' }, t('quantspec.title')), svg, h('figcaption', {}, t('quantspec.caption')));
}

const UPPER = 132;
const LOWER = UPPER + CELL;
const END = LEFT + CELLS * CELL;

/** The cache: a column a token, its upper half over its lower one, and the newest tokens beside it. */
function nibbles(t) {
  const made = [words(LEFT + CELL, UPPER - 10, t('quantspec.cache'), 'var(--sv-muted)')];
  for (let place = 0; place < CELLS; place += 1) {
    const x = LEFT + place * CELL;
    made.push(box(x, UPPER, CELL, CELL, '--sv-ok-bg', '--sv-ok-line'), box(x, LOWER, CELL, CELL, '--sv-own-bg', '--sv-own-line'));
  }
  const beside = END + 12;
  for (let place = 0; place < RECENT; place += 1) made.push(box(beside + place * CELL, UPPER, CELL, 2 * CELL, '--sv-surface', '--sv-edge', '3 3'));
  made.push(
    halo(LEFT + (CELLS * CELL) / 2, UPPER + 16, t('quantspec.upper'), 'var(--sv-ok-ink)'),
    halo(LEFT + (CELLS * CELL) / 2, LOWER + 16, t('quantspec.lower'), 'var(--sv-own-ink)'),
    words(WIDTH - 4, LOWER + CELL + 18, t('quantspec.recent'), 'var(--sv-muted)', 'end'),
  );
  return made;
}

/** Who reads what: drafting above, from the upper half alone; the target below, from both. */
function readers(t) {
  const middle = WIDTH / 2;
  const below = HEIGHT - 58;
  return [
    box(LEFT, 8, WIDTH - 2 * LEFT, 50, '--sv-ok-bg', '--sv-ok-line'),
    words(middle, 28, t('quantspec.draft'), 'var(--sv-ok-ink)', 'middle', 600),
    words(middle, 47, t('quantspec.draft.reads'), 'var(--sv-ok-ink)', 'middle'),
    ...arrow(LEFT + CELL / 2, UPPER + CELL / 2, 62, '--sv-ok-line'),
    box(LEFT, below, WIDTH - 2 * LEFT, 50, '--sv-own-bg', '--sv-own-line'),
    words(middle, below + 20, t('quantspec.target'), 'var(--sv-own-ink)', 'middle', 600),
    words(middle, below + 39, t('quantspec.target.reads'), 'var(--sv-own-ink)', 'middle'),
    ...arrow(LEFT + 1.5 * CELL, UPPER + CELL / 2, below - 4, '--sv-ok-line'),
    ...arrow(LEFT + 2.5 * CELL, LOWER + CELL / 2, below - 4, '--sv-own-line'),
  ];
}

function arrow(x, from, to, colour) {
  const way = Math.sign(to - from);
  const stroke = `stroke: var(${colour}); stroke-width: 2; fill: none`;
  return [
    draw('path', { d: `M${x} ${from}V${to}`, style: stroke }),
    draw('path', { d: `M${x - 5} ${to - 7 * way}L${x} ${to}L${x + 5} ${to - 7 * way}`, style: stroke }),
  ];
}

function box(x, y, width, height, fill, stroke, dashes = 'none') {
  return draw('rect', { x, y, width, height, rx: 3, style: `fill: var(${fill}); stroke: var(${stroke}); stroke-dasharray: ${dashes}` });
}

function words(x, y, text, colour, anchor = 'start', weight = 400) {
  const element = draw('text', { x, y, 'text-anchor': anchor, 'aria-hidden': 'true', style: `fill: ${colour}; font-size: 13px; font-weight: ${weight}` });
  element.textContent = text;
  return element;
}

/** Words over cells, set off from their borders. */
function halo(x, y, text, colour) {
  const element = words(x, y, text, colour, 'middle', 600);
  element.style.cssText += 'stroke: var(--sv-surface); stroke-width: 4px; paint-order: stroke; stroke-linejoin: round';
  return element;
}

function draw(tag, attributes) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
