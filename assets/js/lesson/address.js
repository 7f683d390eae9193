/** The lesson's part of the address: which lesson, which step, presenter view or not. */

const NAMES = ['lesson', 'step', 'present'];

export function readAddress(search = location.search) {
  const query = new URLSearchParams(search);
  return { lesson: query.get('lesson'), step: query.get('step'), present: query.get('present') === '1' };
}

/** Write these values; with null the address speaks of no lesson. Everything else in it stays. */
export function writeAddress(values) {
  const url = new URL(location.href);
  for (const name of NAMES) url.searchParams.delete(name);
  if (values?.lesson) url.searchParams.set('lesson', values.lesson);
  if (values?.step) url.searchParams.set('step', values.step);
  if (values?.present) url.searchParams.set('present', '1');
  if (url.href !== location.href) history.replaceState(history.state, '', url.href);
}
