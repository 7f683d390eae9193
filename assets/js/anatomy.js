/**
 * How a drafter works, in one drawing for all of them: what it reads of the target, from the token ids up to the
 * logits, and how the tokens of a round come about, with time running down. Beside it what the run on the board tells.
 */

import { h } from './dom.js';
import { badge, bytesText } from './numbers.js';

const SVG = 'http://www.w3.org/2000/svg';
/** The target from its end to its beginning, as a pass goes upwards. */
const LEVELS = Object.freeze(['logits', 'last_hidden', 'high', 'middle', 'low', 'kv', 'ids']);
const BANDS = Object.freeze(['low', 'middle', 'high']);
const ROW = 34;
const BAR = 27;
const HEAD = 58;
const TARGET = { width: 232, height: HEAD + LEVELS.length * ROW + 6 };
const DRAFTER = { width: 340, height: 276 };
const CELL = { width: 74, bar: 58, height: 26 };
const SHOWN = 4; // drafts that are drawn; of more, the first two and the last

export function mountAnatomy(root, { boot, words, state }) {
  const holder = h('div', { class: 'sv-anatomy' });
  root.append(holder);
  const narrow = matchMedia('(max-width: 760px)');
  let shown = {};

  const draw = () => {
    const { trace = null, bundle = null, view = null } = shown;
    const name = trace?.meta.drafter ?? state.get('drafter');
    const drafter = boot.drafters.find((each) => each.name === name);
    if (!drafter) {
      holder.replaceChildren(h('p', { class: 'sv-none' }, words.t('anatomy.unknown', { drafter: String(name) })));
      return;
    }
    const told = tell(drafter, trace, { boot, words });
    const picture = (narrow.matches ? drawDown : drawAcross)(told);
    picture.setAttribute('aria-label', told.sentence);
    const rows = trace ? numbersOf(drafter, trace, costOf(bundle, trace, view), { boot, words }) : [];
    holder.replaceChildren(
      h('figure', {}, picture, h('figcaption', {}, told.note)),
      h('dl', { class: 'sv-numbers' }, ...rows),
      h('p', { class: 'sv-anatomy-made' }, provenance(drafter, words)),
    );
  };
  narrow.addEventListener('change', draw);
  return {
    show(next) {
      shown = next;
      draw();
    },
  };
}

// ------------------------------------------------------------ in words

/** Everything the drawing says, with the sentence that says it all. */
function tell(drafter, trace, { boot, words }) {
  const { t } = words;
  const { anatomy } = drafter;
  const options = trace?.meta.drafter_options ?? {};
  const knobs = Object.fromEntries(drafter.knobs.map((knob) => [knob.name, options[knob.name] ?? knob.default]));
  const further = anatomy.further
    .filter(([name]) => knobs[name] !== drafter.knobs.find((knob) => knob.name === name).default)
    .map(([, what]) => what);
  const reads = [...anatomy.reads, ...further];
  const layers = typeof anatomy.layers === 'string' ? [knobs[anatomy.layers]] : anatomy.layers;
  const gamma = Number.isInteger(trace?.meta.gamma) ? trace.meta.gamma : null;
  const title = t(`drafter.${drafter.name}`);
  const order = t(`anatomy.order.${anatomy.order}`);
  const steps = stepsText(anatomy.steps, gamma, t);
  const body = t(`anatomy.body.${anatomy.body}`);
  const list = new Intl.ListFormat(words.lang).format(reads.map((what) => readText(what, layers, words)));
  const drafts = anatomy.order !== 'none';
  const sentence = [
    reads.length ? t('anatomy.said', { drafter: title, reads: list }) : t('anatomy.said.nothing', { drafter: title }),
    drafts ? t('anatomy.said.order', { order, steps }) : `${order}.`,
    drafts ? t(`anatomy.said.${anatomy.body}`) : '',
  ];
  const target = trace?.meta.target ?? boot.targets[0]?.name;
  const own = `anatomy.note.${drafter.name}`;
  return {
    t,
    title,
    target: [...boot.targets, boot.recorded].find((each) => each.name === target)?.title ?? String(target),
    body: drafts ? body : '',
    order: { name: anatomy.order, text: order },
    steps: { name: anatomy.steps, text: drafts ? steps : '' },
    runs: anatomy.body === 'target',
    levels: LEVELS.map((level) => levelOf(level, reads, layers, t)),
    cells: cellsOf(gamma ?? SHOWN),
    note: words.has(own) ? t(own, knobs) : '',
    sentence: sentence.filter(Boolean).join(' '),
  };
}

function stepsText(steps, gamma, t) {
  if (steps !== 'gamma') return t(`anatomy.steps.${steps}`);
  return gamma === null ? t('anatomy.steps.gamma.unknown') : t('anatomy.steps.gamma', { gamma });
}

function readText(what, layers, words) {
  if (what !== 'hidden') return words.t(`anatomy.read.${what}`);
  if (!layers) return words.t('anatomy.read.hidden.unknown');
  const list = new Intl.ListFormat(words.lang).format(layers.map(String));
  return words.t(layers.length > 1 ? 'anatomy.read.hidden' : 'anatomy.read.hidden.one', { layers: list });
}

/** A level of the target: {read, text}. Of layers known by number the low ones come first; a single one is in between. */
function levelOf(level, reads, layers, t) {
  const band = BANDS.indexOf(level);
  const name = t(`anatomy.level.${level}`);
  if (band < 0) return { read: reads.includes(level), text: name };
  if (!reads.includes('hidden')) return { read: false, text: name };
  if (!layers) return { read: true, text: name };
  if (layers.length === 1)
    return band === 1
      ? { read: true, text: t('anatomy.level.layer', { layer: layers[0] }) }
      : { read: false, text: name };
  const here = layers.filter((_, place) => Math.floor((BANDS.length * place) / layers.length) === band);
  if (!here.length) return { read: false, text: name };
  return { read: true, text: t('anatomy.level.numbered', { level: name, layer: here.join(', ') }) };
}

/** The numbers of the drafts that are drawn; null stands for those in between. */
function cellsOf(gamma) {
  if (gamma <= SHOWN) return Array.from({ length: Math.max(gamma, 1) }, (_, place) => place + 1);
  return [1, 2, null, gamma];
}

function provenance({ provenance: papers }, words) {
  if (!papers) return '';
  const { t } = words;
  const { parameters, shards, agree, alpha, prompts, licence } = papers;
  const learned = agree.length ? 'anatomy.provenance.shards' : 'anatomy.provenance.counted';
  const rates = agree.map((rate) => words.number(rate, 2)).join(' · ');
  const parts = [
    parameters ? t('anatomy.provenance.parameters', { millions: words.number(parameters / 1e6, 1) }) : '',
    shards ? t(learned, { shards }) : '',
    alpha === null ? '' : t('anatomy.provenance.live', { alpha: words.number(alpha, 2), prompts }),
    alpha === null && agree.length ? t('anatomy.provenance.agree', { rates }) : '',
    licence ?? '',
  ];
  return t('anatomy.provenance', { parts: parts.filter(Boolean).join(', ') });
}

// ------------------------------------------------------------ in numbers

/** The server's c, where it speaks of the run that is looked at. */
function costOf(bundle, trace, view) {
  const judged = bundle?.traces.find((each) => each.meta.drafter !== 'none') ?? bundle?.traces[0];
  return trace === judged ? view?.numbers.find(({ key, value }) => key === 'c' && value !== null) : undefined;
}

function numbersOf(drafter, trace, cost, { words }) {
  const { t } = words;
  const { anatomy } = drafter;
  if (anatomy.order === 'none') return [];
  const origin = trace.origin === 'recorded' ? 'recorded' : 'measured';
  const rounds = trace.rounds.filter((round) => !round.prefill);
  const drafting = rounds.filter((round) => round.nodes.length);
  const drafted = drafting.reduce((sum, round) => sum + round.nodes.length, 0);
  const timed = rounds.length > 0 && rounds.every((round) => Number.isFinite(round.ms.propose));
  const spent = timed ? rounds.reduce((sum, round) => sum + round.ms.propose, 0) : null;
  const ms = (value) => t('anatomy.number.ms', { ms: words.number(value, digits(value)) });
  const rows = [];
  const add = (key, value, fraction, kind) => rows.push(row(t(key), value, fraction, badge(kind, words)));

  const passes = passesOf(anatomy.steps, drafting, trace.meta);
  if (passes === null) add('anatomy.number.passes', t('anatomy.number.most', { gamma: trace.meta.gamma }), '', 'computed');
  else if (drafting.length) {
    const whole = passes % drafting.length === 0;
    const fraction = passes ? `${passes} / ${drafting.length}` : '';
    add('anatomy.number.passes', words.number(passes / drafting.length, whole ? 0 : 2), fraction, 'computed');
  }
  if (passes && spent !== null && passes !== drafted)
    add('anatomy.number.per_pass', ms(spent / passes), `${ms(spent)} / ${passes}`, origin);
  if (drafted && spent !== null)
    add('anatomy.number.per_token', ms(spent / drafted), `${ms(spent)} / ${drafted}`, origin);
  if (cost) add('number.c', words.number(cost.value, cost.digits), cost.fraction, cost.badge);
  for (const [key, sizes] of [['weights', trace.meta.weight_bytes], ['kv', trace.meta.kv_bytes_per_token]]) {
    if (!isSize(sizes?.drafter)) continue;
    const beside = isSize(sizes.target) ? t('anatomy.number.beside', { bytes: bytesText(sizes.target, words) }) : '';
    add(`anatomy.number.${key}`, bytesText(sizes.drafter, words), beside, origin);
  }
  return rows;
}

/**
 * Passes of the drafter's own network in all rounds that drafted: one for each depth it drafted, or as many as the
 * drafter itself tells (drafts cut from its text are other tokens than it wrote). Null: some of what it grew was cut
 * away again, so the trace does not show how deep it went.
 */
function passesOf(steps, drafting, meta) {
  if (steps === 'none') return 0;
  if (steps === 'one') return drafting.length;
  if (meta.drafter_options?.tree > 0) return null;
  const deep = (round) => Math.max(...round.nodes.map((_, node) => round.pathTo(node).length));
  return drafting.reduce((sum, round) => sum + (round.nodes[0].why?.drafted_tokens ?? deep(round)), 0);
}

const isSize = (value) => Number.isSafeInteger(value) && value >= 0;

const digits = (value) => (value >= 10 ? 1 : value >= 0.1 ? 2 : 3);

function row(name, value, fraction, mark) {
  return h(
    'div',
    { class: 'sv-number' },
    h('dt', {}, name),
    h('dd', { class: 'sv-number-value' }, h('b', {}, value), h('span', {}, fraction), mark),
  );
}

// ------------------------------------------------------------ the drawing

/** Target left, drafter right: every arrow is straight. */
function drawAcross(told) {
  const left = TARGET.width + 106;
  const width = left + DRAFTER.width;
  const canvas = frame(width, TARGET.height);
  canvas.append(targetBox(told));
  told.levels.forEach(({ read }, place) => read && canvas.append(arrow(`M${TARGET.width - 12},${mid(place)}H${left}`, left, mid(place), 0)));
  if (told.runs) {
    const [x, y] = [TARGET.width - 12, mid(LEVELS.indexOf('middle'))];
    canvas.append(brace(x));
    for (const by of [-2.5, 2.5]) canvas.append(shape('path', { d: `M${x + 10},${y + by}H${left}`, class: 'sv-anatomy-same' }));
    canvas.append(text((x + 10 + left) / 2, y - 10, told.t('anatomy.same'), 'sv-anatomy-small', 'middle'));
  }
  canvas.append(drafterBox(told, left, 0, TARGET.height));
  return canvas;
}

/** Target above, drafter below: what is read comes down along the right edge. */
function drawDown(told) {
  const top = TARGET.height + 46;
  const rail = TARGET.width + 56;
  const height = told.order.name === 'none' ? HEAD : DRAFTER.height;
  const canvas = frame(DRAFTER.width, top + height);
  canvas.append(targetBox(told));
  const read = told.levels.flatMap((level, place) => (level.read ? [place] : []));
  for (const place of read) canvas.append(shape('path', { d: `M${TARGET.width - 12},${mid(place)}H${rail}`, class: 'sv-anatomy-line' }));
  if (read.length) canvas.append(arrow(`M${rail},${mid(read[0])}V${top}`, rail, top, 90));
  if (told.runs) {
    const [x, y] = [TARGET.width - 12, mid(LEVELS.indexOf('middle'))];
    canvas.append(brace(x));
    for (const by of [-2.5, 2.5]) canvas.append(shape('path', { d: `M${x + 10},${y + by}H${x + 38 - by}V${top}`, class: 'sv-anatomy-same' }));
    canvas.append(text(x + 26, top - 18, told.t('anatomy.same'), 'sv-anatomy-small', 'end'));
  }
  canvas.append(drafterBox(told, 0, top, height));
  return canvas;
}

const mid = (place) => HEAD + place * ROW + BAR / 2;

function targetBox({ t, target, levels }) {
  const box = shape('g', {});
  box.append(
    shape('rect', { x: 0.5, y: 0.5, width: TARGET.width - 1, height: TARGET.height - 1, rx: 8, class: 'sv-anatomy-box' }),
    text(14, 24, t('anatomy.target'), 'sv-anatomy-head'),
    text(14, 44, target, 'sv-anatomy-small'),
  );
  levels.forEach(({ read, text: name }, place) => {
    const y = HEAD + place * ROW;
    box.append(
      shape('rect', { x: 12, y, width: TARGET.width - 24, height: BAR, rx: 5, class: `sv-anatomy-level${read ? ' sv-anatomy-level--read' : ''}` }),
      text(22, y + 18, name, `sv-anatomy-name sv-anatomy-name--${read ? 'read' : 'unread'}`),
    );
  });
  return box;
}

/** Around the three bands of layers: the drafter runs some of these. */
function brace(x) {
  const [top, bottom] = [mid(LEVELS.indexOf('high')) - BAR / 2, mid(LEVELS.indexOf('low')) + BAR / 2];
  return shape('path', { d: `M${x + 4},${top}H${x + 10}V${bottom}H${x + 4}`, class: 'sv-anatomy-same' });
}

function drafterBox(told, x, y, height) {
  const { width } = DRAFTER;
  const box = shape('g', { transform: `translate(${x} ${y})` });
  const idle = told.order.name === 'none';
  box.append(
    shape('rect', { x: 0.5, y: 0.5, width: width - 1, height: height - 1, rx: 8, class: `sv-anatomy-box${idle ? ' sv-anatomy-box--idle' : ''}` }),
    text(16, 24, told.title, 'sv-anatomy-head'),
    text(16, 44, told.body, 'sv-anatomy-small'),
  );
  if (idle) return box;
  box.append(text(width - 14, 24, told.t('anatomy.time'), 'sv-anatomy-small', 'end'), drawDrafts(told, 16, HEAD));
  const lines = wrap(told.steps.text, 44);
  const first = height - 18 - lines.length * 18;
  box.append(text(16, first, told.order.text, 'sv-anatomy-head'));
  lines.forEach((line, place) => box.append(text(16, first + 20 + place * 18, line, 'sv-anatomy-name')));
  return box;
}

/** The drafts of a round in columns, under the pass they come out of. */
function drawDrafts({ t, order, steps, cells }, x, y) {
  const group = shape('g', { transform: `translate(${x} ${y})` });
  if (order.name === 'sequential') cells.forEach((cell, place) => group.append(...step(t, cell, place, cells.length)));
  else {
    const width = (cells.length - 1) * CELL.width + CELL.bar;
    const none = steps.name === 'none';
    group.append(...pass(0, 0, width, t(none ? 'anatomy.pass.none' : 'anatomy.pass.all'), none));
    cells.forEach((cell, place) => {
      const middle = place * CELL.width + CELL.bar / 2;
      group.append(arrow(`M${middle},${CELL.height}V48`, middle, 48, 90), draft(middle, 50, cell));
      if (order.name === 'hybrid' && place)
        group.append(arrow(`M${middle - CELL.width + 18},${50 + CELL.height / 2}H${middle - 18}`, middle - 18, 50 + CELL.height / 2, 0));
    });
  }
  return group;
}

/** One pass and its draft, a step further right and down than the one before, which it waits for. */
function step(t, cell, place, count) {
  const drop = 32;
  const [left, top] = [place * CELL.width, place * drop];
  const middle = left + CELL.bar / 2;
  if (cell === null) return [-1, 0, 1].map((by) => shape('circle', { cx: middle + by * 16, cy: top + 29 + by * 10, r: 2.5, class: 'sv-anatomy-tip' }));
  const parts = [...pass(left, top, CELL.bar, t('anatomy.pass', { n: cell })), draft(middle, top + drop, cell)];
  if (place < count - 1) parts.push(arrow(`M${middle + 16},${top + drop + 13}H${left + CELL.width - 2}`, left + CELL.width - 2, top + drop + 13, 0));
  return parts;
}

function pass(x, y, width, name, none = false) {
  return [
    shape('rect', { x, y, width, height: CELL.height, rx: 5, class: `sv-anatomy-pass${none ? ' sv-anatomy-pass--none' : ''}` }),
    text(x + width / 2, y + 18, name, `sv-anatomy-name${none ? '' : ' sv-anatomy-name--pass'}`, 'middle'),
  ];
}

function draft(middle, y, number) {
  const group = shape('g', {});
  if (number !== null) group.append(shape('rect', { x: middle - 15, y, width: 30, height: CELL.height, rx: 5, class: 'sv-anatomy-draft' }));
  group.append(text(middle, y + 18, number === null ? '…' : String(number), 'sv-anatomy-name', 'middle'));
  return group;
}

function arrow(d, x, y, turn) {
  const group = shape('g', { class: 'sv-anatomy-arrow' });
  group.append(shape('path', { d, class: 'sv-anatomy-line' }), shape('path', { d: 'M-9,-5L0,0L-9,5Z', transform: `translate(${x} ${y}) rotate(${turn})`, class: 'sv-anatomy-tip' }));
  return group;
}

function frame(width, height) {
  return shape('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', class: 'sv-anatomy-drawing' });
}

function text(x, y, said, className, anchor = 'start') {
  const element = shape('text', { x, y, class: className, 'text-anchor': anchor });
  element.textContent = said;
  return element;
}

/** Lines of at most about `most` letters, broken between words. */
function wrap(said, most) {
  const lines = [];
  for (const word of said.split(' ').filter(Boolean)) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + word.length < most) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}
