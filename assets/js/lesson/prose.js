/**
 * A lesson's words as elements. They come as HTML that the server made from Markdown, and are rebuilt here piece by
 * piece from a list of what is allowed, so that nothing else can stand on the page whatever the text holds.
 */

import { h } from '../dom.js';

const ALLOWED = new Set([
  ...['P', 'EM', 'STRONG', 'CODE', 'PRE', 'UL', 'OL', 'LI', 'BR', 'HR', 'BLOCKQUOTE', 'H3', 'H4', 'H5', 'SUB', 'SUP'],
  ...['TABLE', 'THEAD', 'TBODY', 'TR', 'TH', 'TD', 'A', 'SPAN'],
]);
const KEPT = ['data-ref', 'data-to', 'data-screen', 'role', 'tabindex', 'start', 'lang'];

/** The elements of `html`, ready to append. */
export function prose(html) {
  const parsed = new DOMParser().parseFromString(html ?? '', 'text/html');
  const fragment = document.createDocumentFragment();
  copyInto(fragment, parsed.body);
  return fragment;
}

/** A block of prose. */
export function block(html, className = 'sv-l-prose') {
  const element = h('div', { class: className });
  element.append(prose(html));
  return element;
}

/** A table on a narrow page scrolls in a box of its own. */
function copyInto(parent, from) {
  for (const node of from.childNodes) {
    if (node.nodeType === Node.TEXT_NODE && parent.tagName === 'CODE') parent.append(...breakable(node.textContent));
    else if (node.nodeType === Node.TEXT_NODE) parent.append(bound(node.textContent));
    else if (node.nodeType === Node.ELEMENT_NODE && ALLOWED.has(node.tagName)) parent.append(copyOf(node));
    else if (node.nodeType === Node.ELEMENT_NODE) copyInto(parent, node);
  }
}

/**
 * No line begins with a sign: "1 − β", "q = 0.39" and "γ + 1" stay together. Nor does a short
 * name break at its hyphen ("EAGLE-3", "n-gram"), or a number before what it counts ("2,1 lần", "8 %").
 */
function bound(text) {
  return text
    .replace(/[ \n](?=[=+·<÷][ \n])/g, '\u00a0')
    .replace(/ − /g, '\u00a0−\u00a0')
    .replace(/(?<=\p{L})-(?=\d|gram|hot)/gu, '-\u2060')
    .replace(/(?<=\d)[ \n](?=(%|lần|MB|ms)(?!\p{L}))/gu, '\u00a0');
}

/** A long name of code breaks behind its underscores, and is copied as it stands. */
export function breakable(code) {
  return code.split(/(?<=_)(?=\w)/).flatMap((part, index) => (index ? [h('wbr'), part] : [part]));
}

function copyOf(node) {
  const element = h(node.tagName.toLowerCase());
  for (const name of KEPT) if (node.hasAttribute(name)) element.setAttribute(name, node.getAttribute(name));
  if (node.dataset.ref) element.className = `sv-ref sv-ref--${node.dataset.ref}`;
  const href = node.tagName === 'A' ? node.getAttribute('href') : null;
  if (href && /^(https?:\/\/|\?)/.test(href)) {
    element.setAttribute('href', href);
    if (href.startsWith('http')) {
      element.setAttribute('target', '_blank');
      element.setAttribute('rel', 'noopener noreferrer');
    }
  }
  copyInto(element, node);
  return element;
}
