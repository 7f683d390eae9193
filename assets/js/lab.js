/** The Lab: the formula at hand, the law at hand, experiments, the drafters side by side, and the cache in blocks. A room is built when it is entered. */

import { h } from './dom.js';
import { ExperimentsRoom } from './lab/experiments.js';
import { FamilyRoom } from './lab/family.js';
import { FormulaRoom } from './lab/formula.js';
import { LawRoom } from './lab/law.js';
import { PagedRoom } from './lab/paged.js';
import { ROOMS } from './lab/settings.js';
import { badge } from './numbers.js';

const MAKE = { formula: FormulaRoom, law: LawRoom, experiments: ExperimentsRoom, family: FamilyRoom, paged: PagedRoom };

/** Into the formula room, with the sliders on the run that stands on the Live page's board. */
export function goToLab(host) {
  host.state.set({ page: 'lab', lab_room: 'formula' });
  host.stand();
  scrollTo(0, 0);
}

/** A link there, for others to hold. */
export function linkToLab({ words, toLab }) {
  return words.bind(linked('?place=lab', toLab), 'lab.link');
}

export function mountLab(root, host) {
  return new Lab(root, host);
}

class Lab {
  #host;
  #ctx;
  #boxes;
  #links;
  #rooms = new Map();

  constructor(root, host) {
    this.#host = host;
    const { state, words } = host;
    this.#ctx = {
      t: words.t,
      lang: () => words.lang,
      number: (value, digits, fixed) => words.number(value, digits, fixed),
      badge: (origin, source) => badge(origin === 'live' ? 'measured' : origin, words, detailOf(source)),
    };
    this.#boxes = new Map(ROOMS.map((name) => [name, h('div', { class: `sv-lab-room sv-lab-room--${name}` })]));
    this.#links = ROOMS.map((name) =>
      words.bind(
        linked(`?place=lab&room=${name}`, () => state.set({ lab_room: name })),
        `lab.room.${name}`,
      ),
    );
    root.append(
      h(
        'div',
        { class: 'sv-lab-head' },
        words.bind(h('h1', { class: 'sv-title' }), 'lab.title'),
        words.bind(h('nav', { class: 'sv-lab-rooms' }, ...this.#links), 'lab.rooms', 'aria-label'),
      ),
      ...this.#boxes.values(),
    );
    host.stand = () => this.#rooms.get('formula').stand();
    host.watch('value', () => {
      for (const name of ['formula', 'experiments']) this.#rooms.get(name)?.take(host.props.value);
    });
    this.#show();
  }

  redraw(changed) {
    this.#show();
    if (changed.includes('lang')) for (const room of this.#rooms.values()) room.build();
    else if (changed.includes('theme') || changed.some((name) => name.startsWith('lab_'))) this.#room?.draw();
    if (changed.includes('page') || changed.includes('lab_room')) {
      for (const room of this.#rooms.values()) if (room !== this.#room) room.leave();
      this.#room?.arrive();
    }
  }

  /** The room the visitor is in; null while another place is shown. */
  get #room() {
    const { state } = this.#host;
    return state.get('page') === 'lab' ? this.#rooms.get(state.get('lab_room')) : null;
  }

  #show() {
    const { state } = this.#host;
    const at = state.get('lab_room');
    ROOMS.forEach((name, index) => {
      this.#boxes.get(name).hidden = name !== at;
      if (name === at) this.#links[index].setAttribute('aria-current', 'page');
      else this.#links[index].removeAttribute('aria-current');
    });
    if (state.get('page') === 'lab' && !this.#rooms.has(at))
      this.#rooms.set(at, new MAKE[at](this.#boxes.get(at), this.#host, this.#ctx));
  }
}

function linked(href, go) {
  return h('a', {
    href,
    onClick(event) {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go();
    },
  });
}

/** Where a recording or a measurement was made. */
function detailOf(source) {
  const about = source?.meta ?? source?.conditions ?? source ?? {};
  return [about.target, about.device_name ?? about.device, about.dtype, about.created?.slice(0, 10)].filter(Boolean).join(' · ');
}
