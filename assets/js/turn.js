/** One question at a time: what would be asked meanwhile is asked once more behind it, so that the last answer is the newest. */

/** `ask` asks and shows; the function that comes back may be called as often as something changes. */
export function inTurn(ask) {
  let asking = false;
  let again = false;
  return async () => {
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    try {
      do {
        again = false;
        await ask();
      } while (again);
    } finally {
      asking = false;
    }
  };
}
