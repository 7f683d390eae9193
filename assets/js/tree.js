/**
 * One round whose drafts branch: columns by depth, the kept path straight along the top, every other child below its
 * elder in the order in which it is tried. The elements stand in reading order (the path, the target's own token, then
 * the other branches depth first); a grid puts them where they are seen.
 */

import { drawToken, make, quote } from './tile.js';

/** As in row.js: the place of the target's own token. */
const OWN = 'own';
export const ROOT = -1;
/** Above this many drafts tiles off the path are small, and what was never judged is folded. */
const MANY = 12;

export function isTree(round) {
  return round.nodes.some((node, index) => node.parent !== index - 1);
}

export function depthOf(round, index) {
  return index === ROOT ? 0 : round.pathTo(index).length;
}

/** The drafts after a node, in the order in which they are tried. */
export function childrenOf(round, parent) {
  return round.nodes.flatMap((node, index) => (node.parent === parent ? [index] : []));
}

/** The id of the token that the tree hangs from; null where the trace begins with this round. */
export function rootToken(trace, round) {
  const before = trace.entries.findLast((entry) => entry.round < round.round);
  return before?.id ?? trace.prompt.at(-1) ?? null;
}

/** Where a draft stands among its siblings: {depth, place, of, parent}, as words take it. */
export function standing(trace, round, index, t) {
  const { parent } = round.nodes[index];
  const family = childrenOf(round, parent);
  const above = parent === ROOT ? rootToken(trace, round) : round.nodes[parent].id;
  return {
    depth: depthOf(round, index),
    place: family.indexOf(index) + 1,
    of: family.length,
    parent: above === null ? '∅' : quote(trace.text(above), t),
  };
}

/** `button(node, token)` makes a tile and keeps it; `judged(node, view)` says whether its fate is shown already. */
export class Tree {
  #trace;
  #round;
  #judged;
  #cells = new Map();
  #folds = new Map();
  #opened = new Set();
  #places = new Map();
  #view = null;
  #ctx = null;

  constructor(trace, round, button, judged) {
    this.#trace = trace;
    this.#round = round;
    this.#judged = judged;
    this.many = round.nodes.length > MANY;
    this.element = make('div', 'sv-tree-scroll');
    this.#grid = make('div', `sv-tree${this.many ? ' sv-tree--many' : ''}`);
    this.element.append(this.#grid);
    this.#build(button);
    new ResizeObserver(() => this.#measure()).observe(this.element);
  }

  #grid;
  #wires = [];

  /** A row that scrolls sideways must be reachable by keys; one that does not is no place to stop. */
  #measure() {
    if (this.element.scrollWidth > this.element.clientWidth + 1) this.element.tabIndex = 0;
    else this.element.removeAttribute('tabindex');
  }

  #build(button) {
    const round = this.#round;
    const root = make('span', 'sv-tree-cell sv-tree-root');
    const above = rootToken(this.#trace, round);
    if (above !== null) root.append(drawToken(this.#trace.text(above)));
    root.setAttribute('aria-hidden', 'true');
    this.#add(ROOT, root);
    const path = round.nodes.flatMap((node, index) => (node.status === 'accepted' ? [index] : []));
    for (const index of path) this.#addTile(index, button);
    if (round.emitted) this.#addTile(OWN, button);
    const below = (parent) => {
      for (const child of childrenOf(round, parent)) {
        if (!path.includes(child)) this.#addTile(child, button);
        below(child);
      }
      if (this.many && childrenOf(round, parent).length) this.#addFold(parent);
    };
    below(ROOT);
  }

  #addTile(node, button) {
    const cell = make('span', 'sv-tree-cell');
    const id = node === OWN ? this.#round.emitted.id : this.#round.nodes[node].id;
    const family = node === OWN ? [] : childrenOf(this.#round, this.#round.nodes[node].parent);
    if (family.length > 1) {
      const order = make('span', 'sv-tree-order', String(family.indexOf(node) + 1));
      order.setAttribute('aria-hidden', 'true');
      cell.append(order);
    }
    cell.append(button(node, this.#trace.text(id)));
    this.#add(node, cell);
  }

  #add(node, cell) {
    this.#cells.set(node, cell);
    this.#grid.append(cell);
  }

  #addFold(parent) {
    const cell = make('span', 'sv-tree-cell');
    const fold = make('button', 'sv-tree-fold');
    fold.type = 'button';
    fold.tabIndex = -1;
    fold.dataset.keeps = '';
    fold.addEventListener('click', () => {
      if (!this.#opened.delete(parent)) this.#opened.add(parent);
      this.#draw();
    });
    cell.append(fold);
    this.#folds.set(parent, fold);
    this.#cells.set(`fold${parent}`, cell);
    this.#grid.append(cell);
  }

  /** Show what `view` (see Steps.view) lets the learner see. */
  paint(view, ctx) {
    this.#view = view;
    this.#ctx = ctx;
    this.#draw();
  }

  /** Buttons beside the tiles, which are stops for Tab only while the cursor is in this row. */
  get extras() {
    return [...this.#folds.values()];
  }

  // ------------------------------------------------------------ where everything stands

  #draw() {
    const lit = this.#lit();
    const places = new Map();
    this.#spread({ key: ROOT, lit: true, all: !this.many }, { row: 1, depth: 0 }, { places, lit, free: [] });
    this.#places = places;
    const deepest = Math.max(...[...places.values()].map(({ depth }) => depth));
    this.#grid.style.gridTemplateColumns = `max-content repeat(${deepest}, 1.25rem max-content)`;
    for (const [key, cell] of this.#cells) {
      const place = places.get(key);
      cell.hidden = place === undefined;
      cell.classList.toggle('sv-tree-cell--lit', place?.lit === true);
      cell.classList.toggle('sv-tree-cell--onward', place?.onward === true);
      if (place) cell.style.gridArea = `${place.row} / ${2 * place.depth + 1}`;
    }
    this.#drawWires(places);
    this.#nameFolds();
    this.#measure();
  }

  /** The kept drafts whose verdict is shown. */
  #lit() {
    const { nodes } = this.#round;
    return new Set(nodes.flatMap((node, index) => (node.status === 'accepted' && this.#judged(index, this.#view) ? [index] : [])));
  }

  /**
   * Put a node and everything below it: its first item in its own row, each other as high as the items before it leave
   * its columns free. `free` holds for every depth the first row that is free.
   */
  #spread({ key, lit: isLit, all }, { row, depth, parent }, held) {
    const { places, lit, free } = held;
    const items = this.#below(key, all, lit);
    places.set(key, { row, depth, parent, lit: isLit, onward: items.length > 0 });
    free[depth] = row + 1;
    items.forEach((item, index) => {
      const place = { row: index === 0 ? row : this.#room(item, depth + 1, held), depth: depth + 1, parent: key };
      this.#spread(item, place, held);
    });
  }

  /** The first row in which an item and the line of first items behind it have room. */
  #room(item, depth, { lit, free }) {
    let row = 1;
    for (let at = item, deep = depth; at; at = this.#below(at.key, at.all, lit)[0], deep += 1) row = Math.max(row, free[deep] ?? 1);
    return row;
  }

  /** What is drawn behind a node, in order: the kept draft or the target's own token, the other drafts, the fold. */
  #below(node, all, lit) {
    if (typeof node !== 'number') return [];
    const folded = all ? [] : this.#folded(node, lit);
    const children = childrenOf(this.#round, node).filter((child) => !folded.includes(child));
    const kept = children.find((child) => lit.has(child));
    const isEnd = kept === undefined && (node === ROOT || lit.has(node));
    return [
      ...(isEnd && this.#view.whole && this.#round.emitted ? [{ key: OWN, lit: true }] : []),
      ...(kept === undefined ? children : [kept, ...children.filter((each) => each !== kept)]).map((key) => ({ key, lit: lit.has(key), all })),
      ...(this.#opened.has(node) ? folded : []).map((key) => ({ key, lit: false, all: true })),
      ...(folded.length ? [{ key: `fold${node}`, lit: false }] : []),
    ];
  }

  /** The children that stand behind this node's fold: those passed over, or all where the target has not got to. */
  #folded(node, lit) {
    const reached = node === ROOT || lit.has(node);
    const passed = (child) => this.#round.nodes[child].status === 'discarded' && this.#judged(child, this.#view);
    const found = childrenOf(this.#round, node).filter((child) => !reached || passed(child));
    // One draft takes no more room than its fold.
    return found.length === 1 && this.#size(found[0]) === 1 ? [] : found;
  }

  #nameFolds() {
    const { t } = this.#ctx;
    const lit = this.#lit();
    for (const [parent, fold] of this.#folds) {
      const n = this.#folded(parent, lit).reduce((sum, child) => sum + this.#size(child), 0);
      const open = this.#opened.has(parent);
      const id = parent === ROOT ? rootToken(this.#trace, this.#round) : this.#round.nodes[parent].id;
      fold.textContent = `${open ? '−' : '+'}${n}`;
      fold.setAttribute('aria-expanded', String(open));
      fold.setAttribute('aria-label', `${fold.textContent}: ${t('tree.fold', { n, parent: id === null ? '∅' : quote(this.#trace.text(id), t) })}`);
    }
  }

  #size(node) {
    return 1 + childrenOf(this.#round, node).reduce((sum, child) => sum + this.#size(child), 0);
  }

  #drawWires(places) {
    for (const wire of this.#wires) wire.remove();
    this.#wires = [];
    for (const [key, { row, depth, parent, lit }] of places) {
      if (key === ROOT) continue;
      const from = places.get(parent).row;
      const wire = make('span', `sv-tree-wire${row === from ? ' sv-tree-wire--straight' : ''}${from === 1 ? ' sv-tree-wire--top' : ''}${lit ? ' sv-tree-wire--lit' : ''}`);
      wire.setAttribute('aria-hidden', 'true');
      wire.style.gridArea = `${from} / ${2 * depth} / ${row + 1} / ${2 * depth + 1}`;
      this.#wires.push(wire);
    }
    this.#grid.append(...this.#wires);
  }

  // ------------------------------------------------------------ walking

  /** The node one step away (up and down among siblings, left to the parent, right to the first child), or null. */
  toward(node, [down, right]) {
    const at = this.#places.get(node);
    if (!at) return null;
    if (right < 0) return at.parent === ROOT ? null : at.parent;
    const seen = [...this.#places].filter(([key]) => key !== ROOT && !String(key).startsWith('fold'));
    const family = (parent) => seen.filter(([, place]) => place.parent === parent).sort((a, b) => a[1].row - b[1].row).map(([key]) => key);
    if (right > 0) return family(node)[0] ?? null;
    const siblings = family(at.parent);
    return siblings[siblings.indexOf(node) + down] ?? null;
  }

  /** Bring a tile into the part of the row that is seen. */
  bring(tile) {
    const box = this.element.getBoundingClientRect();
    const at = tile.getBoundingClientRect();
    if (at.right > box.right - 8) this.element.scrollLeft += at.right - box.right + 32;
    else if (at.left < box.left + 8) this.element.scrollLeft -= box.left - at.left + 32;
  }

  /** Mark these nodes as those the mask speaks of; the first one is the one pointed at. */
  link(nodes) {
    for (const [key, cell] of this.#cells) {
      cell.classList.toggle('sv-tree-cell--linked', nodes.includes(key));
      cell.classList.toggle('sv-tree-cell--pointed', nodes[0] === key);
    }
  }
}
