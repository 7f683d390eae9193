/** The kinds of experiments: what each is made of, what it starts with, and how its choices stand in the address. */

import { comparable } from '../against.js';

/** What a question is about, and the questions. */
export const GROUPS = Object.freeze({
  drafter: ['gamma', 'temperature', 'task'],
  reader: ['streaming'],
  machine: ['concurrency', 'context', 'quantisation'],
});
export const KINDS = Object.freeze(Object.values(GROUPS).flat());
export const MACHINE = GROUPS.machine;
export const TASKS = Object.freeze(['chat', 'explanation', 'list', 'code', 'summary', 'question']);
export const SETS = Object.freeze(['held_out', 'presets', 'own']);
// As in spec_viz/ui/experiments.py, which checks them again.
export const MOST = Object.freeze({ drafters: 4, points: 200, prompts: 24 });
/** What is chosen one of. */
export const CHOICES = Object.freeze({
  limit: [1, 2, 3, 4],
  tokens: [16, 24, 32, 48, 64, 128],
  repeats: [1, 2, 3, 5],
  gamma: [1, 2, 3, 4, 6, 8, 12],
  temperature: [0, 0.5, 0.7, 1],
  policies: [0, 1],
});
/** What is chosen several of. A form of the target is its weights, or the bits of its KV cache, `r` for turned before. */
export const VALUES = Object.freeze({
  gamma: [1, 2, 3, 4, 6, 8, 10, 12],
  temperature: [0, 0.3, 0.5, 0.7, 1, 1.5],
  batches: [1, 2, 4, 8, 16, 32],
  gammas: [1, 2, 4, 6, 8],
  alphas: [0.4, 0.6, 0.8, 0.9],
  lengths: [256, 512, 1024, 2048, 4096],
  variants: ['int8', 'int4', 'int8_bfloat16', 'kv8', 'kv4', 'kv4r', 'kv3', 'kv3r'],
});

/**
 * Small enough for a minute or two on two cores. `drafters` are the first `most` of these that are ready: those that
 * draft from a law of their own show most over temperatures. Without `tasks` the prompts are not chosen.
 */
const PARTS = Object.freeze({
  gamma: {
    drafters: ['prompt_lookup', 'eagle3'],
    values: { gamma: [1, 2, 4, 8] },
    tasks: ['chat', 'code', 'summary'],
    more: { tokens: 32, repeats: 1, temperature: 0 },
  },
  temperature: {
    drafters: ['eagle3', 'draft_model', 'early_exit'],
    most: 1,
    values: { temperature: [0, 0.5, 1] },
    tasks: ['chat', 'code', 'summary'],
    more: { tokens: 32, repeats: 1, gamma: 4 },
  },
  task: {
    drafters: ['prompt_lookup', 'token_recycling', 'eagle3'],
    values: {},
    tasks: TASKS,
    more: { tokens: 32, repeats: 1, gamma: 4, temperature: 0 },
  },
  streaming: {
    drafters: ['prompt_lookup', 'eagle3'],
    values: {},
    tasks: ['code'],
    more: { tokens: 32, repeats: 1, gamma: 4, temperature: 0 },
  },
  concurrency: {
    drafters: ['prompt_lookup', 'eagle3'],
    values: { batches: [1, 2, 4, 8, 16], gammas: [2, 4], alphas: [0.6, 0.8] },
    // Every request of a batch reads its prompt alone, so short ones keep the whole short.
    tasks: ['chat', 'list', 'code'],
    more: { tokens: 24, repeats: 1, policies: 0 },
  },
  context: {
    drafters: ['prompt_lookup', 'window'],
    values: { lengths: [256, 512, 1024, 2048] },
    more: { tokens: 32, repeats: 1, gamma: 4 },
  },
  quantisation: {
    drafters: ['prompt_lookup', 'eagle3'],
    values: { variants: ['int8', 'int4', 'kv8', 'kv4', 'kv4r'] },
    tasks: ['chat', 'code'],
    more: { tokens: 24, gamma: 4 },
  },
});

export const partsOf = (kind) => PARTS[kind];

/** Everything that can be chosen, as it is at first: what one kind is made of, and what all share. */
export function usual(boot) {
  return {
    kind: KINDS[0],
    kinds: Object.fromEntries(KINDS.map((kind) => [kind, usualOf(kind, boot)])),
    set: SETS[0],
    presets: [],
    own: '',
    file: null,
  };
}

function usualOf(kind, boot) {
  const { drafters, most = MOST.drafters, values, tasks = [], more } = PARTS[kind];
  const ready = readyOf(boot);
  const first = drafters.filter((name) => ready.includes(name)).slice(0, most);
  return { drafters: first, ...structuredClone(values), tasks: [...tasks], limit: 1, ...more };
}

function readyOf(boot) {
  return comparable(boot).filter((each) => each.ready).map((each) => each.name);
}

// ------------------------------------------------------------ the address

/**
 * The kind on show and its choices that are not the usual ones, in signs that an address leaves as they are:
 * concurrency*batches-1-2-4*tokens-32. Empty for what a first visit shows. Typed prompts stay out of it.
 */
export function written(kept, boot) {
  const { kind, kinds, set, presets } = kept;
  const before = usualOf(kind, boot);
  const parts = Object.entries(kinds[kind]).filter(([name, value]) => String(value) !== String(before[name]));
  if (set !== SETS[0]) parts.push(['set', set]);
  if (set === 'presets' && presets.length) parts.push(['presets', presets]);
  const text = [kind, ...parts.map(([name, value]) => [name, ...[value].flat()].join('-'))].join('*');
  return text === KINDS[0] ? '' : text;
}

/** What an address says, checked: a name or value that is not offered is left out. */
export function read(text, boot) {
  const kept = usual(boot);
  const [kind, ...parts] = text.split('*');
  if (!KINDS.includes(kind)) return kept;
  kept.kind = kind;
  const mine = kept.kinds[kind];
  const lists = { ...VALUES, drafters: readyOf(boot), tasks: TASKS };
  const names = boot.presets.map((each) => each.name);
  for (const [name, ...given] of parts.map((part) => part.split('-'))) {
    const offered = (all) => all.filter((each) => given.includes(String(each)));
    if (name === 'set') [kept.set = kept.set] = offered(SETS);
    else if (name === 'presets') kept.presets = offered(names).slice(0, MOST.prompts);
    else if (!Object.hasOwn(mine, name)) continue;
    else if (Array.isArray(mine[name])) mine[name] = offered(lists[name]).slice(0, name === 'drafters' ? MOST.drafters : Infinity);
    else [mine[name] = mine[name]] = offered(CHOICES[name]);
  }
  return kept;
}

// ------------------------------------------------------------ how long it takes

/** What a sample weighs beside others of its kind: a batch and a prefix take longer the larger they are. */
export function weightOf(kind, point) {
  if (kind === 'concurrency') return point.batch ** 0.7;
  return kind === 'context' ? 1000 + point.prefix : 1;
}

/** What a whole run weighs that brings `of` samples, as many of each size. */
export function wholeWeight({ kind, plan }, of) {
  const sizes = { concurrency: () => plan.batches.map((batch) => ({ batch })), context: () => plan.lengths.map((prefix) => ({ prefix })) }[kind]?.();
  if (!sizes) return of;
  return (of / sizes.length) * sizes.reduce((sum, each) => sum + weightOf(kind, each), 0);
}
