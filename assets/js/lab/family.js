/** The family room: drafters that learn from the target, side by side, with what was published of each. */

import { h } from '../dom.js';
import { makeFamily, summary } from '../family.js';

export class FamilyRoom {
  #root;
  #host;
  #ctx;
  #family = null; // null while it is fetched
  #text = null; // as it came
  #failed = false;

  constructor(root, host, ctx) {
    this.#root = root;
    this.#host = host;
    this.#ctx = ctx;
    this.build();
    this.#load();
  }

  async #load() {
    try {
      const answer = await fetch(`${this.#host.boot.static}family.json`);
      if (!answer.ok) throw new Error(`family: ${answer.status}`);
      const text = await answer.text();
      // What was sorted or scrolled stays so while there is nothing new.
      if (text === this.#text) return;
      this.#family = JSON.parse(text);
      this.#text = text;
      this.#failed = false;
    } catch (error) {
      console.error(error);
      this.#failed = true;
    }
    this.build();
  }

  build() {
    const { t } = this.#ctx;
    const lead = h('p', { class: 'sv-lead' }, t('family.lead'));
    if (!this.#family) {
      const state = this.#failed ? 'missing' : 'loading';
      this.#root.replaceChildren(lead, h('p', { class: this.#failed ? 'sv-alert' : 'sv-none' }, t(`family.${state}`)));
      return;
    }
    const { static: base } = this.#host.boot;
    const save = (kind) => h('a', { class: 'sv-quiet sv-quiet--tool sv-fam-save', href: `${base}family.${kind}`, download: `specviz-family.${kind}` }, t(`family.save.${kind}`));
    this.#root.replaceChildren(
      lead,
      h('p', { class: 'sv-lab-verdict sv-fam-verdict' }, summary(this.#family.members, this.#ctx)),
      makeFamily(this.#family, this.#ctx),
      h('p', { class: 'sv-fam-warning' }, t('family.warning')),
      h('div', { class: 'sv-tools', 'data-hide': 'tools' }, save('csv'), save('json')),
    );
  }

  /** Nothing in it is painted by script. */
  draw() {}

  /** A head may have been trained since. */
  arrive() {
    if (this.#family || this.#failed) this.#load();
  }

  leave() {}
}
