/** The wait for the model to be loaded. */

const POLL = 2000;

export class Waiting {
  #host;
  #tell;
  #turn = null;

  /** `tell({key, args})` hears the sentence that says why it takes. */
  constructor(host, tell) {
    this.#host = host;
    this.#tell = tell;
  }

  get on() {
    return this.#turn !== null;
  }

  /** True once the model is ready; false when the wait was ended before. */
  async over() {
    const mine = {};
    this.#turn = mine;
    while (this.#turn === mine) {
      const answer = await this.#ask();
      if (this.#turn !== mine) break;
      if (answer.ready) {
        this.#turn = null;
        return true;
      }
      this.#tell(answer);
      await new Promise((resolve) => setTimeout(resolve, POLL));
    }
    return false;
  }

  end() {
    this.#turn = null;
  }

  async #ask() {
    try {
      return (await this.#host.server.state()) ?? { ready: false, key: 'shell.state.away', args: {} };
    } catch (error) {
      console.error(error);
      return { ready: false, key: 'shell.state.away', args: {} };
    }
  }
}
