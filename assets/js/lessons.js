/** The Lessons place: the list, and the player of the lesson that is open. Files are fetched when a lesson opens. */

import { h } from './dom.js';
import { readAddress, writeAddress } from './lesson/address.js';

export function mountLessons(root, host) {
  return new Lessons(root, host);
}

class Lessons {
  #root;
  #host;
  #player = null;
  #place; // {lesson, step, present}: what the address says while this place is shown
  #asked = 0;

  constructor(root, host) {
    this.#root = root;
    this.#host = host;
    this.#place = readAddress();
    if (!this.#entry()) this.#place = { lesson: null, step: null, present: false };
    host.watch('value', () => this.#player?.take(host.props.value));
    // A class leads the player, and changes what a guess does when it begins or ends.
    host.lessons = { open: (place) => this.#follow(place), again: () => this.#player?.again() };
    this.#draw();
  }

  /** A place of the shell: these names of the state have changed. */
  redraw(changed) {
    const here = this.#host.state.get('page') === 'lessons';
    if (changed.includes('page')) writeAddress(here ? this.#place : null);
    if (changed.includes('lang')) this.#draw();
    else if (changed.includes('theme')) this.#player?.repaint();
  }

  #entry() {
    return (this.#host.boot.lessons ?? []).find((lesson) => lesson.slug === this.#place.lesson);
  }

  #draw() {
    this.#asked += 1;
    if (this.#entry()) this.#open(this.#place.lesson, this.#asked);
    else this.#list();
  }

  // ------------------------------------------------------------ the list

  #list() {
    const { boot, words, classroom } = this.#host;
    this.#close();
    const cards = (boot.lessons ?? []).map((lesson) => this.#card(lesson));
    this.#root.replaceChildren(
      h('h1', { class: 'sv-title' }, words.t('lesson.list.title')),
      h('p', { class: 'sv-lead' }, words.t(cards.length ? 'lesson.list.lead' : 'lesson.list.none')),
      classroom.door(),
      h('ol', { class: 'sv-l-cards' }, ...cards),
    );
    // With the door in its place the class sees that it needs no form of its own.
    classroom.moved(null, null);
  }

  #card({ slug, number, title, question, steps }) {
    const { words } = this.#host;
    const link = h(
      'a',
      {
        href: `?place=lessons&lesson=${slug}`,
        onClick: (event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return;
          event.preventDefault();
          this.#go({ lesson: slug, step: null, present: false });
        },
      },
      h('span', { class: 'sv-l-card-number' }, number),
      h('span', { class: 'sv-l-card-title' }, title[words.lang]),
      h('span', { class: 'sv-l-card-question' }, question[words.lang]),
      h('span', { class: 'sv-l-about' }, words.t('lesson.list.steps', { steps: steps.length })),
    );
    return h('li', {}, link);
  }

  #go(place) {
    this.#place = place;
    writeAddress(place);
    this.#draw();
  }

  /** Where a class is: another step of the open lesson, or another lesson. */
  #follow({ lesson, step }) {
    if (this.#player && lesson === this.#place.lesson) {
      this.#player.goTo(step);
      return;
    }
    this.#close();
    this.#go({ ...this.#place, lesson, step });
  }

  // ------------------------------------------------------------ a lesson

  async #open(slug, mine) {
    const { words } = this.#host;
    if (!this.#player)
      this.#root.replaceChildren(h('p', { class: 'sv-lead', role: 'status' }, words.t('lesson.loading')));
    try {
      const [{ Player }, { lesson, texts }] = await Promise.all([
        import('./lesson/player.js'),
        this.#load(slug, words.lang),
      ]);
      if (mine !== this.#asked) return;
      if (this.#player) this.#player.setLesson(lesson, texts);
      else this.#player = new Player(this.#root, this.#host, this.#options(lesson, texts));
    } catch (error) {
      console.error(error);
      if (mine === this.#asked) this.#fail();
    }
  }

  #options(lesson, texts) {
    return {
      lesson,
      texts,
      step: this.#place.step,
      present: this.#place.present,
      moved: ({ step, present }) => {
        this.#place = { lesson: lesson.slug, step, present };
        if (this.#host.state.get('page') === 'lessons') writeAddress(this.#place);
        this.#host.classroom.moved(lesson.slug, step);
      },
      leave: (ndjson) => this.#leave(ndjson),
      home: () => this.#go({ lesson: null, step: null, present: false }),
    };
  }

  /** The lesson and everything that was recorded for it, so that stepping asks for nothing. */
  async #load(slug, lang) {
    const { static: base } = this.#host.boot;
    const lesson = await (await fetched(`${base}lesson/${slug}.${lang}.json`)).json();
    const { filesOf } = await import('./lesson/figures.js');
    Promise.allSettled([...document.fonts].map((face) => face.load()));
    if (lesson.steps.some(({ figure }) => ['runs', 'experiment'].includes(figure.kind))) {
      const { loadPlotly } = await import('./charts.js');
      loadPlotly(base).catch((error) => console.error(error)); // a chart that cannot be drawn leaves its table
    }
    const paths = [...new Set(lesson.steps.flatMap((step) => filesOf(step.figure)))];
    const texts = await Promise.all(paths.map(async (path) => [path, await textOf(`${base}${path}`)]));
    return { lesson, texts: new Map(texts.filter(([, text]) => text !== null)) };
  }

  #fail() {
    const { words } = this.#host;
    this.#close();
    this.#root.replaceChildren(
      h('p', { class: 'sv-alert', role: 'alert' }, words.t('lesson.failed')),
      h('button', { class: 'sv-l-quiet', type: 'button', onClick: () => this.#draw() }, words.t('lesson.retry')),
    );
  }

  #close() {
    this.#player?.destroy();
    this.#player = null;
  }

  /** To the Live place, with the run of this step on its board. */
  #leave(ndjson) {
    const { state } = this.#host;
    state.set({ page: 'live' });
    if (ndjson) this.#host.open?.(ndjson);
  }
}

async function fetched(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  return answer;
}

/** A recording's text; a step whose recording is missing says so itself. */
async function textOf(url) {
  try {
    return await (await fetched(url)).text();
  } catch (error) {
    console.error(error);
    return null;
  }
}
