/** One way to make elements. Strings become text nodes, so nothing that is said can turn into markup. */

/**
 * h('button', { class: 'sv-run', type: 'button', onClick: run }, 'Run').
 * A property that starts with "on" is a listener; true sets an empty attribute; null, undefined and false set none.
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2).toLowerCase(), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set text only when it differs, so that a live region does not speak twice. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let count = 0;

/** An id for labels and descriptions. */
export function newId(name) {
  count += 1;
  return `sv-${name}-${count}`;
}
