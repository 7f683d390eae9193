/** How one token is drawn and spoken. Tokens come from a model, so their text only ever enters as a text node. */

import { bytesOf, segments } from './trace.js';

/** Four channels: the first two are here, colour and border follow the class in board.css, words in `legend.*`. */
export const LOOKS = Object.freeze({
  accepted: { className: 'sv-tile--ok', glyph: '✓' },
  rejected: { className: 'sv-tile--no', glyph: '✗' },
  discarded: { className: 'sv-tile--off', glyph: '·' },
  correction: { className: 'sv-tile--correction', glyph: '↺' },
  bonus: { className: 'sv-tile--bonus', glyph: '★' },
  plain: { className: 'sv-tile--plain', glyph: '›' },
  draft: { className: 'sv-tile--draft', glyph: '?' },
});

const SPECIAL = /^(<\|[^|]*\|>|<\/?s>|<(bos|eos|pad|unk)>)$/;
const MARKS = { '\n': '⏎', '\t': '⇥', '\r': 'CR' };
// Characters without a shape of their own, or that would turn the text around them: drawn as their code.
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u00a0\u00ad\u061c\u1680\u2000-\u200b\u200e\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]/u;
const CUT = new RegExp(`( {4,}|(?<=^|[\\n\\t\\r]) +| +$|[\\n\\t\\r]|${UNSEEN.source})`, 'u');

export function isSpecial(token) {
  return token.hex === null && SPECIAL.test(token.text);
}

export function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** The token as visible text: spaces, newlines, stray bytes and invisible characters get a mark. */
export function drawToken(token) {
  if (token.unknown) return make('span', 'sv-token sv-token--unknown', '…');
  const holder = make('span', isSpecial(token) ? 'sv-token sv-token--special' : 'sv-token');
  const parts = token.hex === null ? [{ text: token.text }] : segments(bytesOf(token));
  for (const part of parts) {
    if (part.hex) holder.append(make('span', 'sv-token-bytes', part.hex.match(/../g).join(' ')));
    else drawText(holder, part.text);
  }
  if (!holder.firstChild) holder.append(make('span', 'sv-token-mark', '∅'));
  const onlyMarks = [...holder.childNodes].every((child) => child.className === 'sv-token-mark');
  if (onlyMarks) holder.classList.add('sv-token--blank');
  return holder;
}

export function drawText(holder, text) {
  text.split(CUT).forEach((part, index) => {
    if (!part) return;
    if (index % 2) holder.append(drawMark(part));
    else holder.append(/^\p{M}/u.test(part) ? `◌${part}` : part);
  });
}

function drawMark(part) {
  if (part[0] !== ' ') return make('span', 'sv-token-mark', MARKS[part] ?? code(part));
  // Drawn by the style sheet: a tile's name tells spaces in words, and what is left to read stands in it by the letter.
  const mark = make('span', 'sv-token-mark');
  mark.dataset.mark = part.length > 3 ? `␣×${part.length}` : '␣'.repeat(part.length);
  return mark;
}

const TURNING = /([\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069])/u;

/** Running text as it is, but for the invisible characters that would turn the text around them: those are marked. */
export function drawRunning(holder, text) {
  text.split(TURNING).forEach((part, index) => holder.append(index % 2 ? make('span', 'sv-token-mark', code(part)) : part));
}

function code(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;
}

/** The token in a sentence: quoted, with names for what a voice cannot read. */
export function quote(token, t) {
  return token.unknown ? t('board.unknown') : `“${plain(token, t)}”`;
}

function plain(token, t) {
  if (token.hex !== null) {
    const parts = segments(bytesOf(token));
    return parts.map((part) => part.text ?? t('board.bytes', { hex: part.hex.match(/../g).join(' ') })).join('');
  }
  const said = token.text.split(CUT).map((part, index) => (index % 2 ? spoken(part, part === token.text, t) : part));
  return said.join('').trim() || '∅';
}

/** The name of a mark. A few spaces beside a word go without saying. */
function spoken(part, alone, t) {
  if (part[0] === ' ') return alone || part.length > 3 ? t('board.spaces', { n: part.length }) : ' ';
  const name = { '\n': 'board.newline', '\t': 'board.tab', '\r': 'board.return' }[part];
  return name ? t(name) : code(part);
}

const formats = new Map();

/** A number in the visitor's language: decimal comma in Vietnamese. */
export function number(value, lang, digits = 2) {
  const key = `${lang}/${digits}`;
  if (!formats.has(key)) {
    formats.set(key, new Intl.NumberFormat(lang, { minimumFractionDigits: digits, maximumFractionDigits: digits }));
  }
  return formats.get(key).format(value);
}

/** A probability: two digits, more when two would show 0 or 1 for something that is neither. */
export function probability(value, lang) {
  const digits = value > 0 && value < 0.01 ? 4 : value < 1 && value > 0.99 ? 4 : 2;
  if (value > 0 && value < 0.00005) return `< ${number(0.0001, lang, 4)}`;
  if (value < 1 && value > 0.99995) return `> ${number(0.9999, lang, 4)}`;
  return number(value, lang, digits);
}

const ICONS = {
  home: 'M4 3h2v10H4zM13 3v10L6.5 8z', back: 'M11 3v10L4 8z', next: 'M5 3v10l7-5z', end: 'M10 3h2v10h-2zM3 3v10l6.5-5z',
  play: 'M2 3v10l6-5zM8 3v10l6-5z', pause: 'M4 3h3v10H4zM9 3h3v10H9z', reveal: 'M7 2h2v6h3l-4 4.5L4 8h3zM3 13h10v1.5H3z',
};

/** A drawn sign, so that no font has to have it. */
export function icon(name) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('class', 'sv-icon');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(svg.namespaceURI, 'path');
  path.setAttribute('d', ICONS[name]);
  svg.append(path);
  return svg;
}
