/** The words of the page: two flat tables with the same keys, one chosen language, places that follow the choice. */

export const LANGUAGES = Object.freeze(['vi', 'en']);
const MEMORY = 'specviz.lang';

export class Words {
  #tables;
  #lang;
  #bound = [];
  #formats = new Map();

  constructor(tables, lang) {
    this.#tables = tables;
    this.setLang(lang);
  }

  get lang() {
    return this.#lang;
  }

  has(key) {
    return Object.hasOwn(this.#tables[this.#lang], key);
  }

  /**
   * The sentence for `key`, with {name} replaced; the key itself where no sentence exists, so that a gap is seen.
   * A value {key, args} is a sentence within the sentence, said in the same language.
   */
  t = (key, args = {}) => {
    const text = this.has(key) ? this.#tables[this.#lang][key] : key;
    return text.replace(/\{(\w+)\}/g, (whole, name) => (name in args ? this.#show(args[name]) : whole));
  };

  /** A number in the visitor's language. */
  number(value, digits = 2, fixed = true) {
    const key = `${this.#lang}/${digits}/${fixed}`;
    if (!this.#formats.has(key)) {
      const least = fixed ? digits : 0;
      this.#formats.set(
        key,
        new Intl.NumberFormat(this.#lang, {
          minimumFractionDigits: least,
          maximumFractionDigits: digits,
          useGrouping: false,
        }),
      );
    }
    return this.#formats.get(key).format(value);
  }

  /** Keep `node` saying `key` (as its text, or as the attribute `attribute`) in whatever language is chosen. */
  bind(node, key, attribute = null) {
    const apply = () => {
      if (attribute === null) node.textContent = this.t(key);
      else node.setAttribute(attribute, this.t(key));
    };
    this.#bound.push(apply);
    apply();
    return node;
  }

  setLang(lang) {
    this.#lang = lang;
    document.documentElement.lang = lang;
    for (const apply of this.#bound) apply();
  }

  #show(value) {
    if (typeof value?.key === 'string') return this.t(value.key, value.args);
    return typeof value === 'number' ? this.number(value, 2, false) : String(value);
  }
}

/** The language to start with when the address names none: the one chosen last time, the browser's, then the host's. */
export function preferredLanguage(usual) {
  const kept = read();
  if (LANGUAGES.includes(kept)) return kept;
  const spoken = navigator.languages.map((tag) => tag.slice(0, 2).toLowerCase());
  return LANGUAGES.find((lang) => spoken.includes(lang)) ?? usual;
}

/** Remember a choice. A browser that keeps no storage keeps the address, which says it too. */
export function rememberLanguage(lang) {
  try {
    localStorage.setItem(MEMORY, lang);
  } catch (error) {
    console.info('language not remembered:', error.name);
  }
}

function read() {
  try {
    return localStorage.getItem(MEMORY);
  } catch (error) {
    console.info('no storage:', error.name);
    return null;
  }
}
