/** The page's one event to the server: every request says which browser it comes from, and one that was not taken is answered here. */

import { requestOf } from './lab/conduct.js';
import { CUT } from './stream.js';

const KEPT = 'specviz.browser'; // all tabs of a browser are one visitor, who has one turn in the line
const REFUSED = 'sv-refused'; // as in spec_viz/ui/page.py
const ours = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

/** The host component's properties, trigger and watch, with that done. */
export function asking({ props, trigger, watch }) {
  const listeners = [];
  let open = null; // the request that nothing has come back for
  let last = null; // the one that was sent last
  let refusal = null; // the answer to one that was not taken

  const hear = () => {
    for (const listener of listeners) listener();
  };
  watch('value', () => {
    refusal = null;
    if (requestOf(props.value) === open) open = null;
    hear();
  });
  document.addEventListener(REFUSED, () => {
    if (open === null) return;
    const lines = [{ request: open }, { notice: { key: 'error.not_taken', args: {} } }];
    refusal = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
    open = null;
    hear();
  });
  document.addEventListener(CUT, () => {
    if (last === null) return;
    const came = requestOf(props.value) === last ? props.value : `${JSON.stringify({ request: last })}\n`;
    const unfinished = came.lastIndexOf('\n{"schema"') > came.lastIndexOf('\n{"finish"');
    const lines = [...(unfinished ? [{ finish: 'error' }] : []), { notice: { key: 'shell.lost', args: {} } }];
    refusal = came + lines.map((line) => `${JSON.stringify(line)}\n`).join('');
    open = null;
    last = null;
    hear();
  });
  return {
    props: {
      /** The whole answer so far. */
      get value() {
        return refusal ?? props.value;
      },
    },
    trigger(name, data) {
      open = data.request.nonce;
      last = open;
      trigger(name, { ...data, browser: browserName() });
    },
    /** Only answers are watched. */
    watch: (_, listener) => listeners.push(listener),
  };
}

/** This browser's made-up name. One that keeps no storage has a new name for every page. */
function browserName() {
  try {
    const kept = localStorage.getItem(KEPT);
    if (/^[0-9a-f]{32}$/.test(kept)) return kept;
    localStorage.setItem(KEPT, ours);
  } catch (error) {
    console.info('no storage:', error.name);
  }
  return ours;
}
