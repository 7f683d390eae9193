/**
 * A dynamic tree: a column a depth, every node that was grown with the probability of its path, and then what the
 * rerank kept of them. What was dropped stays as an outline.
 */

import { h } from './dom.js';
import { growthOf } from './reasons.js';
import { LOOKS, drawToken, make, number, probability, quote } from './tile.js';
import { ROOT, rootToken } from './tree.js';

const SVG = 'http://www.w3.org/2000/svg';
const COLUMN = 148;
const ROOT_WIDTH = 84;
const ROW = 30;
const CHIP = { width: 116, height: 24 };
const ROOM = 16; // as many nodes of a depth are drawn; of more, those with the best paths

const left = (depth) => ROOT_WIDTH + (depth - 1) * COLUMN + (COLUMN - CHIP.width);

/** How many moves the picture has: a depth each, then the rerank. 0 where the round has no such tree. */
export function movesOf(round) {
  return growthOf(round)?.depth ?? 0;
}

/**
 * The picture of one round, or null. After `move` = 0 … depth − 1 that depth has grown, after `depth` the rerank has
 * chosen; left out, all is shown. `judged`: what the target kept may be seen.
 */
export function drawGrown(trace, round, ctx, { move = Infinity, judged = true } = {}) {
  const growth = growthOf(round);
  if (!growth) return null;
  const { t } = ctx;
  const chosen = move >= growth.depth;
  const shown = placed(growth, chosen ? growth.depth : move + 1);
  const width = left(Math.min(move + 1, growth.depth)) + CHIP.width;
  const height = Math.max(...shown.map((node) => node.row)) * ROW + CHIP.height;
  const plane = h('div', { class: 'sv-grown-plane', style: `width: ${width}px; height: ${height}px` });
  plane.append(wires(shown, width, height, chosen));
  const above = rootToken(trace, round);
  const root = h('span', { class: 'sv-grown-root', style: `width: ${ROOT_WIDTH}px; height: ${CHIP.height}px` });
  if (above !== null) root.append(drawToken(trace.text(above)));
  plane.append(root);
  for (let depth = 1; depth <= Math.min(move + 1, growth.depth); depth += 1) {
    const column = h('ol', { class: 'sv-grown-column', 'aria-label': t('grown.depth', { depth }) });
    for (const node of shown.filter((each) => each.depth === depth)) column.append(chip(trace, round, node, growth, ctx, { chosen, judged }));
    plane.append(column);
  }
  return h(
    'figure',
    { class: 'sv-grown' },
    h('figcaption', {}, t('grown.caption')),
    h('div', { class: 'sv-grown-scroll', tabindex: '0', role: 'group', 'aria-label': t('grown.title', { round: round.round }) }, plane),
    h('p', { class: 'sv-slots-said' }, chosen ? rerankSaid(growth, ctx) : depthSaid(growth, move + 1, ctx)),
    chosen ? key(t) : '',
  );
}

/** The nodes down to a depth, each with its row: families together, in the order of their parents, siblings by path. */
function placed(growth, deepest) {
  const nodes = growth.nodes.map((node, index) => ({ ...node, index, row: 0, open: false }));
  const shown = [];
  let line = [{ index: ROOT }];
  for (let depth = 1; depth <= deepest; depth += 1) {
    const families = line.map(({ index }) => nodes.filter((node) => node.parent === index).sort((a, b) => b.chance - a.chance));
    families.forEach((family, at) => {
      if (family.length && line[at].index !== ROOT) line[at].open = true;
    });
    const all = families.flat();
    const kept = all.filter((node) => node.kept).length;
    const most = new Set([...all].sort((a, b) => Number(b.kept) - Number(a.kept) || b.chance - a.chance).slice(0, Math.max(ROOM, kept)));
    line = all.filter((node) => most.has(node));
    line.forEach((node, row) => {
      node.row = row;
    });
    shown.push(...line);
  }
  return shown;
}

function chip(trace, round, node, growth, ctx, { chosen, judged }) {
  const { t, lang } = ctx;
  const fate = judged && chosen && node.kept ? round.nodes[node.node].status : null;
  const lit = fate === 'accepted';
  const look = !chosen ? '' : node.kept ? ' sv-grown-chip--kept' : ' sv-grown-chip--dropped';
  const item = h('li', {
    class: `sv-grown-chip${look}${lit ? ' sv-grown-chip--ok' : ''}`,
    'data-at': node.kept ? `${round.round}.${node.node}` : null,
    style: `left: ${left(node.depth)}px; top: ${node.row * ROW}px; width: ${CHIP.width}px; height: ${CHIP.height}px`,
  });
  const name = make('span', 'sv-grown-token');
  name.append(drawToken(trace.text(node.id)));
  const fill = make('i', '');
  fill.style.width = `${node.chance * 100}%`;
  if (lit) item.append(h('span', { class: 'sv-grown-sign', 'aria-hidden': 'true' }, LOOKS.accepted.glyph));
  item.append(name, make('span', 'sv-grown-chance', probability(node.chance, lang())), fill);
  const parent = node.parent === ROOT ? rootToken(trace, round) : growth.nodes[node.parent].id;
  const said = [parent === null ? '' : t('grown.behind', { parent: quote(trace.text(parent), t) })];
  if (chosen) said.push(t(node.kept ? 'grown.kept' : 'grown.dropped'));
  if (lit) said.push(t('legend.accepted'));
  item.append(make('span', 'sv-hush', ` ${said.filter(Boolean).join(', ')}`));
  item.title = `${trace.text(node.id).text} ${probability(node.chance, lang())}`;
  return item;
}

function wires(nodes, width, height, chosen) {
  const canvas = document.createElementNS(SVG, 'svg');
  for (const [name, value] of Object.entries({ width, height, 'aria-hidden': 'true', class: 'sv-grown-wires' })) canvas.setAttribute(name, value);
  const rows = new Map(nodes.map((node) => [node.index, node.row]));
  for (const node of nodes) {
    if (node.parent !== ROOT && !rows.has(node.parent)) continue;
    const [x, y] = [left(node.depth), node.row * ROW + CHIP.height / 2];
    const from = (node.parent === ROOT ? 0 : rows.get(node.parent)) * ROW + CHIP.height / 2;
    const start = x - (COLUMN - CHIP.width);
    const path = document.createElementNS(SVG, 'path');
    path.setAttribute('d', `M${start},${from}C${start + 16},${from} ${x - 16},${y} ${x},${y}`);
    path.setAttribute('class', `sv-grown-wire${chosen ? (node.kept ? ' sv-grown-wire--kept' : ' sv-grown-wire--dropped') : ''}`);
    canvas.append(path);
  }
  return canvas;
}

function key(t) {
  const names = ['kept', 'dropped'];
  return h('p', { class: 'sv-grown-key' }, ...names.map((name) =>
    h('span', {}, h('span', { class: `sv-grown-swatch sv-grown-swatch--${name}`, 'aria-hidden': 'true' }), ' ', t(`grown.key.${name}`))));
}

// ------------------------------------------------------------ sentences

function depthSaid(growth, depth, { t }) {
  const born = growth.nodes.filter((node) => node.depth === depth);
  const parents = new Set(born.map((node) => node.parent)).size;
  return t(depth === 1 ? 'grown.said.first' : 'grown.said.depth', { depth, n: born.length, parents });
}

function rerankSaid(growth, { t, lang }) {
  const kept = growth.nodes.filter((node) => node.kept);
  const dropped = growth.nodes.filter((node) => !node.kept);
  const least = Math.min(...kept.map((node) => node.chance));
  const args = { kept: kept.length, grown: growth.grown };
  if (!dropped.length) return t('grown.said.all', { ...args, least: probability(least, lang()) });
  const best = Math.max(...dropped.map((node) => node.chance));
  // Enough digits to see which of the two is the larger.
  const digits = [2, 3, 4].find((count) => least.toFixed(count) !== best.toFixed(count)) ?? 6;
  const said = t('grown.said.rerank', { ...args, least: number(least, lang(), digits), best: number(best, lang(), digits) });
  return growth.grown > growth.told ? `${said} ${t('grown.said.more', { n: growth.grown - growth.told })}` : said;
}
