/** The Serve place: a vLLM server, from its command on. Each part has a section of its own and is built when it is first seen. */

import { h } from './dom.js';
import { ServeConfig } from './serveconfig.js';

/** The parts in order. A part is a class (root, host) with redraw(changed). */
const PARTS = Object.freeze([{ name: 'config', Part: ServeConfig }]);

export function mountServe(root, host) {
  const parts = PARTS.map(({ name, Part }) => {
    const box = h('section', { class: `sv-serve-part sv-serve-part--${name}` });
    root.append(box);
    return new Part(box, host);
  });
  return {
    redraw(changed) {
      for (const part of parts) part.redraw(changed);
    },
  };
}
