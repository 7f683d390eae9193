/**
 * The class that this browser leads. It is kept past its tab, so that a tab that was closed loses no class, and another,
 * opened from a plan's link, can lead it; the tab that led until then hears of it and lets go.
 */

const KEPT = 'specviz.class.led';

/** The pass {code, member, token, guesses}, or null. */
export function readLed() {
  try {
    return passOf(localStorage.getItem(KEPT));
  } catch (error) {
    console.info('no class read:', error.name);
    return null;
  }
}

/** This tab leads now. Other tabs hear only of what is not the same as before. */
export function keepLed(pass) {
  try {
    localStorage.setItem(KEPT, JSON.stringify({ ...pass, since: Date.now() }));
  } catch (error) {
    console.info('class not kept:', error.name);
  }
}

/** The class is over; another that was opened since stays. */
export function forgetLed(code) {
  try {
    if (readLed()?.code === code) localStorage.removeItem(KEPT);
  } catch (error) {
    console.info('class not forgotten:', error.name);
  }
}

/** changed(pass or null): another tab has begun to lead, or its class is over. */
export function watchLed(changed) {
  window.addEventListener('storage', ({ key, newValue }) => key === KEPT && changed(passOf(newValue)));
}

function passOf(text) {
  try {
    const pass = JSON.parse(text ?? 'null');
    return typeof pass?.code === 'string' && typeof pass.token === 'string' && pass.guesses ? pass : null;
  } catch (error) {
    console.info('no class read:', error.name);
    return null;
  }
}
