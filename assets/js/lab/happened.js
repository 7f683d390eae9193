/** What happens to the pool, in sentences; and what a learner may guess before it does. */

import { nameOf } from './pool.js';

/** One sentence for a step, and one for each block that is newly taken in a pass. */
export function sentence(record, step, t) {
  if (step === null) return t('paged.said.start', { pool: record.pool, requests: record.requests.length, places: record.conditions.batch });
  return { join, pass, leave }[step.kind](record, step, t);
}

function join({ block }, { about: [request], held }, t) {
  const own = held.find((each) => each.request === request);
  const empty = own.blocks.length * block - own.after;
  return [
    t('paged.said.join', { name: nameOf(request), tokens: own.after, blocks: own.blocks.length }),
    empty ? t('paged.said.join.empty', { empty }) : '',
    held.length > 1 ? t('paged.said.join.others') : '',
  ].filter(Boolean).join(' ');
}

function pass({ block }, { about, held }, t) {
  const drafted = held.reduce((sum, each) => sum + each.drafted, 0);
  const returned = held.reduce((sum, each) => sum + each.peak - each.after, 0);
  const args = { names: about.map(nameOf).join(', '), n: about.length, drafted, kept: drafted - returned, returned };
  const grown = held.filter((each) => each.taken).map((each) => {
    const blocks = each.blocks.slice(-each.taken).join(', ');
    const idle = each.after <= (each.blocks.length - each.taken) * block;
    const key = idle ? 'idle' : each.drafted ? 'drafts' : 'plain';
    return t(`paged.said.block.${key}`, { name: nameOf(each.request), blocks });
  });
  return [t(`paged.said.pass.${drafted ? 'drafts' : 'plain'}`, args), ...grown].join(' ');
}

function leave({ requests }, { about: [request], freed, waiting }, t) {
  const args = { name: nameOf(request), wrote: requests[request].wrote, blocks: freed.length };
  return [t('paged.said.leave', args), waiting.length ? t('paged.said.leave.next', { next: nameOf(waiting[0]) }) : ''].filter(Boolean).join(' ');
}

/**
 * Steps worth a guess, by position: the first prompt that is read, the first drafts that reach into a new block and
 * come back in part, the first request that leaves. {kind, truth, options, args}.
 */
export function guesses({ steps, block }) {
  const found = new Map();
  const ask = (kind, wanted, tell) => {
    const at = steps.findIndex(wanted);
    if (at < 0) return;
    const { truth, ...args } = tell(steps[at], steps[at - 1]);
    // The truth stands at no fixed place among its neighbours.
    const first = Math.max(truth - 1 - (truth % 2), 0);
    found.set(at + 1, { kind, truth, options: [0, 1, 2, 3].map((more) => first + more), args });
  };
  const reaches = (each) => each.taken && each.peak > each.after;
  const one = ({ held }) => held.filter((each) => each.taken).length === 1;
  ask('join', ({ kind }) => kind === 'join', ({ about, held }) => {
    const own = held.find(({ request }) => request === about[0]);
    return { truth: own.blocks.length, name: nameOf(own.request), tokens: own.after, full: Math.floor(own.after / block), rest: own.after % block };
  });
  ask('drafts', (step) => step.kind === 'pass' && one(step) && step.held.some(reaches), ({ held, free }, { free: before }) => {
    const own = held.find(reaches);
    return { truth: free, name: nameOf(own.request), drafted: own.drafted, before, returned: own.peak - own.after };
  });
  ask('leave', ({ kind }) => kind === 'leave', ({ about, freed, free }, { free: before }) => ({ truth: free, name: nameOf(about[0]), blocks: freed.length, before }));
  return found;
}
