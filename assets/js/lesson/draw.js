/** Small drawings. */

const SPACE = 'http://www.w3.org/2000/svg';

/** An SVG element; strings become text. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== null && value !== undefined) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}
