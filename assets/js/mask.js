/**
 * The tree's attention mask as the matrix it is: a row for every token that the pass computes, a column for every key
 * it may look at. Filled means allowed: the whole cache, the ancestors, itself; never a sibling.
 */

import { drawToken, make, quote } from './tile.js';
import { ROOT, rootToken } from './tree.js';

const SVG = 'http://www.w3.org/2000/svg';
/** Up to this many drafts the cells are large and carry the tokens' texts. */
const NAMED = 20;
const CACHE = 2.2; // the cache's block is wider than a key, in cells

/** The panel under a tree row. `linked(nodes)` hears which nodes are pointed at: the query first, then what it sees. */
export class Mask {
  #trace;
  #round;
  #linked;
  #ctx = null;
  #order; // node indices, the last committed token first
  #at = null;

  constructor(trace, round, linked) {
    this.#trace = trace;
    this.#round = round;
    this.#linked = linked;
    this.#order = [ROOT, ...round.nodes.keys()];
    this.element = make('figure', 'sv-mask');
    this.element.hidden = true;
  }

  #svg;
  #band;
  #columns;
  #caption;
  #said;
  #frame;

  get open() {
    return !this.element.hidden;
  }

  toggle(ctx) {
    this.element.hidden = !this.element.hidden;
    if (this.open) this.draw(ctx);
    else this.#linked([]);
  }

  draw(ctx) {
    this.#ctx = ctx;
    const { t } = ctx;
    const named = this.#round.nodes.length <= NAMED;
    this.#caption = make('figcaption', 'sv-mask-caption', t('mask.caption'));
    this.#frame = make('div', 'sv-mask-frame');
    this.#frame.tabIndex = 0;
    this.#frame.setAttribute('role', 'group');
    this.#frame.setAttribute('aria-label', t('mask.label', { n: this.#order.length }));
    this.#said = make('p', 'sv-mask-said', t('mask.hint'));
    this.#said.setAttribute('role', 'status');
    const words = make('details', 'sv-mask-words');
    const list = make('ol', '');
    for (const node of this.#order) list.append(make('li', '', this.#sees(node)));
    const summary = make('summary', '', t('mask.words'));
    summary.dataset.keeps = '';
    words.append(summary, list);
    this.#frame.append(this.#drawGrid(named ? 22 : 9, named));
    this.element.replaceChildren(this.#caption, this.#frame, this.#said, words);
    this.#listen();
    this.#at = null;
  }

  /** Point at a node from the tree. */
  point(node) {
    if (this.open && this.#order.includes(node)) this.#light(node);
  }

  leave() {
    if (this.open) this.#light(null);
  }

  // ------------------------------------------------------------ the matrix

  #drawGrid(cell, named) {
    const count = this.#order.length;
    const [left, top] = named ? [132, 92] : [2, 2];
    this.#size = { cell, left, top };
    // The last column's name leans out to the right.
    const width = left + (CACHE + count) * cell + (named ? 48 : 2);
    const height = top + count * cell + 2;
    const svg = shape('svg', { viewBox: `0 0 ${width} ${height}`, width, height, class: 'sv-mask-grid', 'aria-hidden': 'true' });
    this.#band = shape('rect', { class: 'sv-mask-band', visibility: 'hidden' });
    this.#columns = shape('g', {});
    svg.append(
      shape('rect', { class: 'sv-mask-paper', x: left, y: top, width: (CACHE + count) * cell, height: count * cell }),
      this.#columns, this.#band,
    );
    this.#order.forEach((node, row) => {
      const cells = shape('g', { class: 'sv-mask-row' });
      cells.append(shape('rect', { class: 'sv-mask-cache', ...this.#box(row, null) }));
      for (const key of this.#keys(node)) {
        cells.append(shape('rect', { class: key === node ? 'sv-mask-self' : 'sv-mask-cell', ...this.#box(row, key) }));
      }
      svg.append(cells);
      if (named) svg.append(this.#name(node, left - 6, top + (row + 0.5) * cell, ''), this.#name(node, 0, 0, `translate(${this.#x(node) + cell / 2} ${top - 6}) rotate(-55)`));
    });
    if (named) {
      const cache = shape('text', { class: 'sv-mask-name', transform: `translate(${left + (CACHE * cell) / 2} ${top - 6}) rotate(-55)` });
      cache.textContent = this.#ctx.t('mask.cache');
      svg.append(cache);
    }
    this.#svg = svg;
    return svg;
  }

  #size;

  #x(node) {
    return this.#size.left + (CACHE + this.#order.indexOf(node)) * this.#size.cell;
  }

  #box(row, key) {
    const { cell, left, top } = this.#size;
    const gap = cell > 12 ? 1.5 : 0.75;
    const [x, wide] = key === null ? [left, CACHE * cell] : [this.#x(key), cell];
    return { x: x + gap, y: top + row * cell + gap, width: wide - 2 * gap, height: cell - 2 * gap, rx: cell > 12 ? 3 : 1 };
  }

  #name(node, x, y, transform) {
    const text = shape('text', { class: `sv-mask-name${transform ? '' : ' sv-mask-name--row'}`, x, y, ...(transform ? { transform } : {}) });
    const token = this.#token(node);
    const shown = token ? drawToken(token) : null;
    for (const mark of shown?.querySelectorAll('[data-mark]') ?? []) mark.textContent = mark.dataset.mark;
    text.textContent = shorten(shown?.textContent ?? '∅');
    text.dataset.node = node;
    return text;
  }

  #token(node) {
    const id = node === ROOT ? rootToken(this.#trace, this.#round) : this.#round.nodes[node].id;
    return id === null ? null : this.#trace.text(id);
  }

  /** The nodes a query may look at, the cache aside. */
  #keys(node) {
    return node === ROOT ? [ROOT] : [ROOT, ...this.#round.pathTo(node)];
  }

  #quoted(node) {
    const token = this.#token(node);
    return token ? quote(token, this.#ctx.t) : '∅';
  }

  #sees(node) {
    const { t } = this.#ctx;
    const above = this.#keys(node).slice(0, -1).map((key) => this.#quoted(key));
    return t('mask.sees', { token: this.#quoted(node), keys: [t('mask.cache'), ...above, t('mask.itself')].join(', ') });
  }

  // ------------------------------------------------------------ pointing

  #listen() {
    const svg = this.#svg;
    svg.addEventListener('pointermove', (event) => this.#light(this.#nodeAt(event)));
    svg.addEventListener('pointerdown', (event) => this.#light(this.#nodeAt(event)));
    svg.addEventListener('pointerleave', () => this.#light(null));
    this.#frame.addEventListener('blur', () => this.#light(null));
    this.#frame.addEventListener('keydown', (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!by || event.shiftKey) return;
      event.preventDefault();
      const row = this.#at === null ? (by > 0 ? 0 : this.#order.length - 1) : this.#order.indexOf(this.#at) + by;
      this.#light(this.#order[Math.min(Math.max(row, 0), this.#order.length - 1)]);
    });
  }

  #nodeAt(event) {
    const { cell, top } = this.#size;
    const box = this.#svg.getBoundingClientRect();
    const scale = this.#svg.viewBox.baseVal.height / box.height;
    return this.#order[Math.floor(((event.clientY - box.top) * scale - top) / cell)] ?? null;
  }

  #light(node) {
    if (node === this.#at) return;
    this.#at = node;
    const { cell, left, top } = this.#size;
    const keys = node === null ? [] : this.#keys(node);
    this.#columns.replaceChildren(...keys.map((key) => shape('rect', {
      class: 'sv-mask-column', x: this.#x(key), y: top, width: cell, height: cell * this.#order.length,
    })));
    if (node === null) this.#band.setAttribute('visibility', 'hidden');
    else {
      const row = this.#order.indexOf(node);
      set(this.#band, { x: left, y: top + row * cell, width: (CACHE + this.#order.length) * cell, height: cell, visibility: 'visible' });
      this.#band.dataset.node = node;
    }
    for (const name of this.#svg.querySelectorAll('.sv-mask-name[data-node]')) {
      name.classList.toggle('sv-mask-name--on', node !== null && (Number(name.dataset.node) === node || (!name.classList.contains('sv-mask-name--row') && keys.includes(Number(name.dataset.node)))));
    }
    this.#said.textContent = node === null ? this.#ctx.t('mask.hint') : this.#sees(node);
    this.#linked(node === null ? [] : [...keys].reverse());
  }
}

function shorten(text) {
  const letters = [...text];
  return letters.length > 13 ? `${letters.slice(0, 12).join('')}…` : text;
}

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  set(element, attributes);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}
