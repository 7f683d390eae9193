/** One round as a row of tiles: its drafts in order, then the target's own token. */

import { Mask } from './mask.js';
import { LOOKS, drawText, drawToken, make, quote } from './tile.js';
import { pieces } from './trace.js';
import { Tree, isTree, standing } from './tree.js';

/** The place of the target's own token, where drafts have their index. */
export const OWN = 'own';

/**
 * A row: {element, tiles: Map(node index | 'own' -> button), round, view, tree, mask, extras}; `view` is what was last
 * painted, `tree` and `mask` are null where the drafts are a chain, `extras` are the row's buttons beside its tiles.
 */
export function drawRow(trace, round) {
  const element = make('li', 'sv-row');
  const label = make('div', 'sv-row-label');
  label.append(make('span', 'sv-row-number', String(round.round)), make('span', 'sv-row-kind'));
  const line = make('div', 'sv-row-tiles');
  const tiles = new Map();
  element.append(label, line);
  const button = (node, token) => {
    const tile = make('button', 'sv-tile');
    tile.type = 'button';
    tile.tabIndex = -1;
    tile.dataset.at = `${round.round}.${node}`;
    tile.append(drawToken(token), make('span', 'sv-tile-glyph'));
    tile.lastChild.setAttribute('aria-hidden', 'true');
    tiles.set(node, tile);
    return tile;
  };
  const row = { element, tiles, round: round.round, view: null, tree: null, mask: null, extras: [] };
  if (isTree(round)) return drawTree(row, label, line, trace, round, button);
  if (round.nodes.length) line.append(drawDrafts(trace, round, button));
  if (round.emitted) line.append(drawOwn(trace, round, button));
  return row;
}

function drawTree(row, label, line, trace, round, button) {
  row.element.classList.add('sv-row--tree');
  row.tree = new Tree(trace, round, button, (node, view) => isJudged(round, node, view));
  row.mask = new Mask(trace, round, (nodes) => row.tree.link(nodes));
  const toggle = make('button', 'sv-mask-toggle');
  toggle.type = 'button';
  toggle.tabIndex = -1;
  toggle.dataset.keeps = '';
  toggle.dataset.mask = round.round;
  label.append(toggle);
  line.replaceWith(row.tree.element);
  row.element.append(row.mask.element);
  row.extras = [toggle, ...row.tree.extras];
  const point = (event) => {
    const tile = event.target.closest('.sv-tile[data-at]');
    if (tile) row.mask.point(address(tile)[1]);
  };
  row.tree.element.addEventListener('pointerover', point);
  row.tree.element.addEventListener('focusin', point);
  row.tree.element.addEventListener('pointerleave', () => row.mask.leave());
  return row;
}

/** Open or close the mask of a tree row. */
export function toggleMask(row, ctx) {
  row.mask.toggle(ctx);
  row.extras[0].setAttribute('aria-expanded', String(row.mask.open));
}

function nameTree(row, trace, round, ctx) {
  const { t } = ctx;
  row.extras[0].textContent = t('mask.title');
  row.extras[0].setAttribute('aria-label', `${t('mask.title')}: ${t('board.round', { round: round.round })}`);
  row.extras[0].setAttribute('aria-expanded', String(row.mask.open));
  if (row.mask.open) row.mask.draw(ctx);
  row.tree.paint(row.view, ctx);
}

/** Drafts in order. Neighbours that share a letter go under one bracket, if one hangs from the other. */
function drawDrafts(trace, round, button) {
  const drafts = make('span', 'sv-drafts');
  let run = [];
  const close = () => {
    if (run.length) joinTiles(drafts, run, leadBytes(trace, round, run[0]), trace, round, button);
    run = [];
  };
  round.nodes.forEach((node, index) => {
    if (run.length && node.parent !== run.at(-1)) close();
    run.push(index);
  });
  close();
  return drafts;
}

function joinTiles(holder, run, before, trace, round, button) {
  const tokens = run.map((index) => trace.text(round.nodes[index].id));
  for (const piece of pieces(tokens, before)) {
    const tiles = run.slice(piece.start, piece.end).map((index) => button(index, trace.text(round.nodes[index].id)));
    holder.append(...bracket(tiles, piece));
  }
}

function drawOwn(trace, round, button) {
  const own = make('span', 'sv-own');
  const kept = round.nodes.flatMap((node, index) => (node.status === 'accepted' ? [index] : []));
  const before = kept.length ? unfinished(trace, round, kept) : round.before;
  const token = trace.text(round.emitted.id);
  own.append(...bracket([button(OWN, token)], pieces([token], before)[0]));
  return own;
}

function leadBytes(trace, round, index) {
  const above = round.pathTo(index).slice(0, -1);
  return above.length ? unfinished(trace, round, above) : round.before;
}

function unfinished(trace, round, path) {
  const last = pieces(path.map((index) => trace.text(round.nodes[index].id)), round.before).at(-1);
  return last.open ? last.bytes : new Uint8Array(0);
}

function bracket(tiles, piece) {
  if (piece.text === null && !piece.open) return tiles;
  if (tiles.length === 1 && !piece.continues && !piece.open) return tiles;
  const join = make('span', 'sv-join');
  const inner = make('span', 'sv-join-tiles');
  inner.append(...tiles);
  const letter = make('span', 'sv-join-letter');
  letter.setAttribute('aria-hidden', 'true');
  if (piece.continues) letter.append('…');
  if (piece.open) letter.append('…');
  else drawText(letter, piece.text);
  join.append(inner, letter);
  return [join];
}

/** Until the round is whole its label keeps the outcome to itself. */
function nameRow(row, round, whole, trace, { t }) {
  const kind = row.element.querySelector('.sv-row-kind');
  kind.textContent = kindOf(round, whole, trace, t);
  row.element.setAttribute('aria-label', `${t('board.round', { round: round.round })}: ${kind.textContent}`);
}

function kindOf(round, whole, trace, t) {
  if (round.prefill) return t('board.kind.prefill');
  const drafted = round.nodes.length;
  if (!drafted) return t(isUntold(round, trace) ? 'board.kind.untold' : 'board.kind.nodraft');
  if (!whole) return t('board.kind.drafted', { drafted });
  return t(round.accepted === drafted ? 'board.kind.all' : 'board.kind.some', { kept: round.accepted, drafted });
}

/** Whether a server's lists leave open if this round had a draft, of which nothing was kept then. */
function isUntold({ round }, { meta }) {
  const stretches = Array.isArray(meta.unsettled) ? meta.unsettled : [];
  return stretches.some((each) => each?.drafted?.length > 0 && each.first <= round && round <= each.last);
}

/** Whether `view` (see Steps.view) already lets the learner see the fate of this tile. */
export function isJudged(round, node, view) {
  if (node === OWN) return view.whole;
  if (round.nodes[node].status === 'discarded') return view.judged;
  return round.judged.indexOf(node) < view.verdicts;
}

/** Bring a row to `view`; does nothing when it is there already. */
export function paintRow(row, trace, view, ctx) {
  if (row.view && Object.keys(view).every((key) => row.view[key] === view[key])) return;
  row.view = view;
  row.element.hidden = !view.drafted;
  if (!view.drafted) return;
  const round = trace.rounds[row.round];
  nameRow(row, round, view.whole, trace, ctx);
  for (const [node, tile] of row.tiles) paintTile(tile, trace, round, node, isJudged(round, node, view), ctx);
  if (row.tree) nameTree(row, trace, round, ctx);
}

/** Whether a person can see this tile and the cursor may go there. */
export function isSeen(tile) {
  return !tile.classList.contains('sv-tile--hidden') && tile.closest('[hidden]') === null;
}

function paintTile(tile, trace, round, node, judged, { t }) {
  const own = node === OWN;
  const fate = own ? round.emitted.kind : judged ? round.nodes[node].status : 'draft';
  const look = LOOKS[fate];
  const current = tile.classList.contains('sv-tile--current');
  tile.className = `sv-tile ${look.className}${own && !judged ? ' sv-tile--hidden' : ''}${current ? ' sv-tile--current' : ''}`;
  tile.lastChild.textContent = look.glyph;
  const token = trace.text(own ? round.emitted.id : round.nodes[node].id);
  const args = { round: round.round, token: quote(token, t), place: own ? 0 : node + 1, of: round.nodes.length };
  const branching = !own && isTree(round);
  if (branching) Object.assign(args, standing(trace, round, node, t));
  tile.setAttribute('aria-label', t(branching ? `tree.tile.${fate}` : `board.tile.${fate}`, args));
}

/** [round, node] of a tile. */
export function address(tile) {
  const [round, node] = tile.dataset.at.split('.');
  return [Number(round), node === OWN ? OWN : Number(node)];
}
