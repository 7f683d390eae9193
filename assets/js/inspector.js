/**
 * Everything that is known about one tile: p, q, the draw u, the rule in a sentence, the candidates of both laws,
 * and at a rejection the residual. A side panel on wide pages, a sheet at the bottom of small ones (board.css).
 */

import { pictureOf } from './pictures.js';
import { drawsItsOwn, judgement, ownToken } from './rule.js';
import { LOOKS, drawToken, make, number, probability } from './tile.js';
import { decode, pieces } from './trace.js';
import { isTree, standing } from './tree.js';

const ROWS = 6;
const TOP = 5; // how many candidates a trace keeps; a shorter list holds all that are not 0
const PLACES = new Set(['found', 'copied']);

/** `close` is called when the visitor closes the sheet. */
export function mountInspector(root, ctx, { close = () => {} } = {}) {
  const panel = make('section', 'sv-inspector');
  const body = make('div', 'sv-inspector-body');
  body.tabIndex = 0;
  const shut = make('button', 'sv-inspector-close', '✕');
  shut.type = 'button';
  shut.addEventListener('click', close);
  panel.append(shut, body);
  root.append(panel);
  const small = matchMedia('(max-width: 1023.98px)'); // as in board.css
  let shown = null;

  const draw = () => {
    panel.setAttribute('aria-label', ctx.t('inspector.title'));
    shut.setAttribute('aria-label', ctx.t('inspector.close'));
    panel.classList.toggle('sv-inspector--open', shown !== null);
    panel.classList.toggle('sv-inspector--pinned', shown?.view.pinned === true);
    body.replaceChildren(...(shown ? contents(shown, ctx) : [make('p', 'sv-inspector-hint', ctx.t('inspector.hint'))]));
  };
  draw();

  return {
    /** `index` = a draft's place in the round, null for the target's own token. */
    show(trace, round, index, view = {}) {
      shown = { trace, round: trace.rounds[round], index, view: { judged: true, pinned: false, ...view } };
      draw();
      body.scrollTop = 0;
    },
    clear() {
      shown = null;
      draw();
    },
    /** Whether this page is small enough for the sheet. */
    sheet: () => small.matches,
    /** Where a sheet begins to cover the page, in window pixels; null when nothing is covered. */
    cover() {
      return shown && small.matches ? panel.getBoundingClientRect().top : null;
    },
    setWords: draw,
    destroy: () => panel.remove(),
  };
}

function contents({ trace, round, index, view }, ctx) {
  const own = index === null;
  const token = own ? round.emitted : round.nodes[index];
  const fate = !view.judged ? 'draft' : own ? token.kind : token.status;
  const parts = [head(trace, round, index, token, fate, ctx)];
  if (own && !view.judged) return [make('p', 'sv-inspector-hint', ctx.t('inspector.hidden'))];
  parts.push(make('p', 'sv-inspector-rule', sentence(trace, round, index, view, ctx)));
  const letter = letterOf(trace, round, index);
  if (letter) parts.push(make('p', 'sv-inspector-note', ctx.t('inspector.letter', letter)));
  parts.push(own ? ownNumbers(trace, token, ctx) : draftNumbers(trace, token, view, ctx));
  parts.push(...laws(trace, round, index, token, view, ctx));
  if (!own && token.why) parts.push(why(trace, round, index, ctx));
  return parts;
}

function head(trace, round, index, token, fate, { t }) {
  const box = make('header', 'sv-inspector-head');
  const tile = make('span', `sv-tile sv-tile--large ${LOOKS[fate].className}`);
  tile.append(drawToken(trace.text(token.id)), make('span', 'sv-tile-glyph', LOOKS[fate].glyph));
  const place = index === null ? t('inspector.place.own', { round: round.round })
    : isTree(round) ? t('tree.place', { round: round.round, ...standing(trace, round, index, t) })
    : t('inspector.place.draft', { round: round.round, place: index + 1, of: round.nodes.length });
  const words = make('p', 'sv-inspector-place');
  words.append(make('b', '', t(`legend.${fate}`)), ` · ${place} · ${token.id === null ? t('board.unknown') : t('inspector.id', { id: token.id })}`);
  box.append(tile, words);
  return box;
}

function sentence(trace, round, index, view, ctx) {
  if (index === null) return ownToken(trace, round, ctx);
  return view.judged ? judgement(trace, round, index, ctx) : ctx.t('inspector.rule.draft');
}

/** The letter that this token shares with its neighbours: {letter, n}, null when it stands for itself. */
function letterOf(trace, round, index) {
  const above = index === null ? round.nodes.flatMap((node, i) => (node.status === 'accepted' ? [i] : [])) : round.pathTo(index).slice(0, -1);
  const below = index === null ? [] : chainBelow(round, index);
  const here = index === null ? round.emitted : round.nodes[index];
  const ids = [...above.map((i) => round.nodes[i].id), here.id, ...below.map((i) => round.nodes[i].id)];
  const piece = pieces(ids.map((id) => trace.text(id)), round.before).find(({ start, end }) => start <= above.length && above.length < end);
  if (!piece?.text || (piece.end - piece.start < 2 && !piece.continues)) return null;
  return { letter: decode(piece.bytes).text.trim() };
}

function chainBelow(round, index) {
  const chain = [];
  for (let at = round.nodes.findIndex((node) => node.parent === index); at >= 0;) {
    chain.push(at);
    const from = at;
    at = round.nodes.findIndex((node) => node.parent === from);
  }
  return chain;
}

// ------------------------------------------------------------ numbers

function draftNumbers(trace, node, view, ctx) {
  if (!view.judged || node.status === 'discarded') return table([['q', node.q]], ctx);
  const rows = [['p', node.p], ['q', node.q]];
  if (trace.meta.temperature === 0) rows.push(['p_raw', node.p_raw]);
  // A drafter that looks its tokens up has no law behind its choice.
  if (trace.meta.temperature === 0 && (node.q_raw != null || node.q !== 1)) rows.push(['q_raw', node.q_raw]);
  rows.push(['accept', node.accept]);
  if (node.u != null || !drawsItsOwn(trace)) rows.push(['u', node.u]);
  if (node.beta != null) rows.push(['beta', node.beta]);
  return table(rows, ctx);
}

function ownNumbers(trace, own, ctx) {
  const rows = [['p', own.p]];
  if (trace.meta.temperature === 0) rows.push(['p_raw', own.p_raw]);
  if (own.u != null) rows.push(['u', own.u]);
  return table(rows, ctx);
}

function table(rows, { t, lang }) {
  const list = make('dl', 'sv-inspector-numbers');
  for (const [name, value] of rows) {
    const item = make('div', 'sv-inspector-number');
    item.title = t(`inspector.${name}.help`);
    const known = value !== null && value !== undefined;
    const shown = make('dd', known ? '' : 'sv-unknown', known ? valueOf(name, value, lang()) : t('inspector.unknown'));
    item.append(make('dt', '', t(`inspector.${name}`)), shown);
    list.append(item);
  }
  return list;
}

function valueOf(name, value, lang) {
  return name === 'u' ? number(value, lang, 3) : probability(value, lang);
}

// ------------------------------------------------------------ laws as bars

function laws(trace, round, index, token, view, ctx) {
  const own = index === null;
  const q = own ? null : token.q_top ?? (token.q === 1 ? [[token.id, 1]] : null);
  const p = view.judged ? token.p_top ?? null : null;
  const parts = [];
  if (p || q) parts.push(candidates(trace, token, p, q, own, view, ctx));
  if (!view.judged || own || token.status !== 'rejected') return parts;
  const instead = round.insteadOf(index);
  if (trace.meta.temperature === 0) parts.push(...beforeTemperature(trace, token, instead, ctx));
  else if (token.residual_top) parts.push(residual(trace, token, instead, ctx));
  return parts;
}

function candidates(trace, token, p, q, own, view, ctx) {
  const { t } = ctx;
  const paired = view.judged && !own;
  const figure = make('figure', 'sv-bars');
  const title = make('figcaption', '', t(own ? 'inspector.candidates.own' : paired ? 'inspector.candidates' : 'inspector.candidates.draft'));
  figure.append(title);
  if (paired) figure.append(key(t));
  const [ofP, ofQ] = [new Map(p), new Map(q)];
  if (!own) {
    if (p && token.p != null) ofP.set(token.id, token.p);
    if (q && token.q != null) ofQ.set(token.id, token.q);
  }
  const height = (id) => Math.max(ofP.get(id) ?? 0, ofQ.get(id) ?? 0);
  const ids = [...new Set([...ofP.keys(), ...ofQ.keys()])].sort((a, b) => height(b) - height(a));
  const kept = ids.slice(0, ROWS);
  if (ids.includes(token.id) && !kept.includes(token.id)) kept[kept.length - 1] = token.id;
  for (const id of kept) {
    const bars = [];
    if (p) bars.push(['p', ofP.get(id) ?? rest(p)]);
    if (q) bars.push(['q', ofQ.get(id) ?? rest(q)]);
    figure.append(bar(trace, id, bars, id === token.id ? (own ? LOOKS[token.kind].glyph : '◂') : '', ctx));
  }
  return figure;
}

/** A candidate that is not in a full top list is only known to be small; a list that is not full leaves out zeros. */
function rest(top) {
  return top.length < TOP ? 0 : undefined;
}

/** At temperature 0 the laws are 0 and 1; how close the call was shows only before it. */
function beforeTemperature(trace, node, instead, ctx) {
  if (node.p_raw == null || instead?.p_raw == null) return [];
  const figure = make('figure', 'sv-bars');
  figure.append(make('figcaption', '', ctx.t('inspector.before')));
  figure.append(bar(trace, instead.id, [['p', instead.p_raw]], LOOKS.correction.glyph, ctx));
  figure.append(bar(trace, node.id, [['p', node.p_raw]], '◂', ctx));
  return [figure];
}

function residual(trace, node, instead, ctx) {
  const figure = make('figure', 'sv-bars');
  figure.append(make('figcaption', '', ctx.t(drawsItsOwn(trace) ? 'inspector.residual.match' : 'inspector.residual')));
  const law = new Map(node.residual_top);
  const ids = [...law.keys()].slice(0, ROWS);
  if (instead && !ids.includes(instead.id)) ids.push(instead.id);
  for (const id of ids) figure.append(bar(trace, id, [['r', law.get(id) ?? rest(node.residual_top)]], id === instead?.id ? LOOKS.correction.glyph : '', ctx));
  figure.append(make('p', 'sv-inspector-note', ctx.t(node.q === 1 ? 'inspector.residual.onehot' : 'inspector.residual.help')));
  return figure;
}

function key(t) {
  const line = make('p', 'sv-bars-key');
  for (const name of ['p', 'q']) line.append(make('span', `sv-bar-swatch sv-bar--${name}`), make('span', '', t(`inspector.law.${name}`)));
  return line;
}

function bar(trace, id, bars, mark, ctx) {
  const row = make('div', `sv-bar-row${mark ? ' sv-bar-row--marked' : ''}`);
  const name = make('span', 'sv-bar-name');
  name.append(drawToken(trace.text(id)));
  const tracks = make('span', 'sv-bar-tracks');
  for (const [law, value] of bars) tracks.append(track(law, value, ctx));
  row.append(name, make('span', 'sv-bar-mark', mark), tracks);
  return row;
}

function track(law, value, { t, lang }) {
  const line = make('span', 'sv-bar-line');
  const box = make('span', 'sv-bar-track');
  const fill = make('span', `sv-bar-fill sv-bar--${law}`);
  fill.style.width = `${(value ?? 0) * 100}%`;
  box.append(fill);
  line.append(box, make('span', 'sv-bar-value', value === undefined ? t('inspector.below') : probability(value, lang())));
  return line;
}

// ------------------------------------------------------------ why the drafter chose it

/** A drafter's reasons are its own; the ones with words are told in words, lists of ids are drawn as tokens. */
function why(trace, round, index, ctx) {
  const { t } = ctx;
  const reasons = round.nodes[index].why;
  const box = make('div', 'sv-inspector-why');
  box.append(make('h4', '', t('inspector.why')));
  const picture = pictureOf(trace, round, index, ctx);
  if (picture) box.append(picture.element);
  const list = make('dl', 'sv-inspector-reasons');
  for (const [name, value] of Object.entries(reasons)) {
    if (picture?.told.includes(name)) continue;
    const words = t(`inspector.why.${name}`);
    const item = make('div', '');
    item.append(make('dt', '', words === `inspector.why.${name}` ? name : words), reason(trace, name, value, ctx));
    list.append(item);
  }
  if (list.firstChild) box.append(list);
  return box;
}

function reason(trace, name, value, { lang, t }) {
  const cell = make('dd', '');
  const ids = name === 'key' && Array.isArray(value) ? value : null;
  if (ids) for (const id of ids) cell.append(drawToken(trace.text(id)));
  else if (PLACES.has(name)) cell.textContent = placeOf(trace, value, t);
  else if (typeof value === 'boolean') cell.textContent = t(value ? 'inspector.yes' : 'inspector.no');
  else if (typeof value === 'number') cell.textContent = Number.isInteger(value) ? String(value) : number(value, lang(), 3);
  else cell.textContent = typeof value === 'string' ? value : JSON.stringify(value);
  return cell;
}

function placeOf(trace, at, t) {
  if (!Number.isInteger(at)) return t('inspector.unknown');
  return at < trace.prompt.length ? t('inspector.why.prompt', { at }) : t('inspector.why.output', { at: at - trace.prompt.length });
}
