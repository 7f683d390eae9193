/** Recorded runs as text: cut to the rounds a figure shows, and compared with a live run. */

export const CONDITIONS = ['device', 'device_name', 'dtype', 'threads'];

/** The first trace of a bundle up to and including round `to`; the closing line stays only where nothing is cut. */
export function cut(ndjson, to = null) {
  const lines = ndjson.split('\n').filter((line) => line.trim());
  const next = lines.findIndex((line, index) => index > 0 && line.startsWith('{"schema"'));
  const own = next < 0 ? lines : lines.slice(0, next);
  const most = to === null ? Infinity : to + 2;
  return `${own.slice(0, most).join('\n')}\n`;
}

/**
 * A live run beside the recorded one: {same, verdicts, at, tokens, changes}. `same`: token for token the same text;
 * `verdicts`: every draft met the same fate; `at`: the first token that differs, from 1; `changes`: conditions that
 * differ, each {name, before, now}.
 */
export function compare(recorded, live) {
  const [before, now] = [recorded, live].map((trace) => trace.entries.map((entry) => entry.id));
  const at = firstDifference(before, now);
  const fates = (trace) =>
    JSON.stringify(trace.rounds.map((round) => round.nodes.map((node) => [node.id, node.status])));
  return {
    same: at === null,
    verdicts: fates(recorded) === fates(live),
    at: at === null ? null : at + 1,
    tokens: now.length,
    changes: changesOf(recorded.meta, live.meta),
  };
}

/** The first index at which two lists differ; null when they are equal. */
export function firstDifference(left, right) {
  const length = Math.max(left.length, right.length);
  for (let index = 0; index < length; index += 1) if (left[index] !== right[index]) return index;
  return null;
}

/** Conditions that differ between two machines, each {name, before, now}. */
export function changesOf(before, now, names = CONDITIONS) {
  const plain = names.map((name) => ({ name, before: before[name], now: now[name] }));
  const packages = Object.keys({ ...before.versions, ...now.versions });
  const versions = packages.map((name) => ({ name, before: before.versions?.[name], now: now.versions?.[name] }));
  return [...plain, ...versions].filter((change) => change.before !== change.now);
}

/** The changes as one phrase; empty where there are none. */
export function changesSaid(changes, t) {
  return changes
    .map(({ name, before, now }) =>
      t('lesson.live.change', {
        name: t(`lesson.live.name.${name}`),
        was: before ?? t('shell.unknown'),
        is: now ?? t('shell.unknown'),
      }),
    )
    .join('; ');
}
