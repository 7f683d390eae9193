/** The Serve place: the command of a vLLM server, a running one asked, several compared, and runs that were saved. */

import { h } from './dom.js';
import { badge } from './numbers.js';
import { CompareRoom } from './serve/compare.js';
import { ConnectRoom } from './serve/connect.js';
import { SavedRoom } from './serve/saved.js';
import { ROOMS } from './serve/settings.js';
import { ServeConfig } from './serveconfig.js';

const MAKE = { config: ServeConfig, connect: ConnectRoom, compare: CompareRoom, saved: SavedRoom };
/** The learner's way, each step with the room it leads to. */
const WAY = Object.freeze([
  ['choose', 'config'],
  ['command', 'config'],
  ['start', 'connect'],
  ['ask', 'connect'],
  ['read', 'compare'],
]);

export function mountServe(root, host) {
  return new Serve(root, host);
}

class Serve {
  #host;
  #ctx;
  #boxes;
  #links;
  #way;
  #rooms = new Map();

  constructor(root, host) {
    this.#host = host;
    const { words } = host;
    this.#ctx = {
      t: words.t,
      lang: () => words.lang,
      number: (value, digits, fixed) => words.number(value, digits, fixed),
      badge: (kind) => badge(kind, words),
      link: (room, key) => words.bind(this.#link(room), key),
    };
    this.#boxes = new Map(ROOMS.map((name) => [name, h('div', { class: `sv-serve-room sv-serve-room--${name}` })]));
    this.#links = ROOMS.map((name) => words.bind(this.#link(name), `serve.room.${name}`));
    this.#way = this.#makeWay();
    root.append(
      h(
        'div',
        { class: 'sv-lab-head' },
        words.bind(h('h1', { class: 'sv-title' }), 'serve.place'),
        words.bind(h('nav', { class: 'sv-lab-rooms' }, ...this.#links), 'serve.rooms', 'aria-label'),
      ),
      this.#way,
      ...this.#boxes.values(),
    );
    host.watch('value', () => {
      for (const room of this.#rooms.values()) room.take?.(host.props.value);
    });
    this.#show();
  }

  redraw(changed) {
    this.#show();
    if (changed.includes('lang')) for (const room of this.#rooms.values()) room.build();
    else if (changed.includes('theme') || changed.some((name) => name.startsWith('serve_'))) this.#room?.draw(changed);
    if (changed.includes('page') || changed.includes('serve_room')) {
      for (const room of this.#rooms.values()) if (room !== this.#room) room.leave?.();
      this.#room?.arrive?.();
    }
  }

  /** The room the visitor is in; null while another place is shown. */
  get #room() {
    const { state } = this.#host;
    return state.get('page') === 'serve' ? this.#rooms.get(state.get('serve_room')) : null;
  }

  #show() {
    const { state } = this.#host;
    const at = state.get('serve_room');
    this.#way.hidden = at !== 'config';
    ROOMS.forEach((name, index) => {
      this.#boxes.get(name).hidden = name !== at;
      if (name === at) this.#links[index].setAttribute('aria-current', 'page');
      else this.#links[index].removeAttribute('aria-current');
    });
    if (state.get('page') === 'serve' && !this.#rooms.has(at))
      this.#rooms.set(at, new MAKE[at](this.#boxes.get(at), this.#host, this.#ctx));
  }

  #makeWay() {
    const { words } = this.#host;
    const steps = WAY.map(([step, room]) => {
      const name = room === 'config' ? h('b') : this.#link(room);
      return h('li', {}, words.bind(name, `serve.way.${step}`), words.bind(h('span'), `serve.way.${step}.help`));
    });
    return words.bind(h('ol', { class: 'sv-serve-way' }, ...steps), 'serve.way', 'aria-label');
  }

  #link(room) {
    return h('a', {
      href: `?place=serve&room=${room}`,
      onClick: (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        this.#host.state.set({ serve_room: room });
        scrollTo(0, 0);
      },
    });
  }
}
