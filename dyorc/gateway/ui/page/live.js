// What the server says of itself every second, kept for some minutes, so that charts have a past.
import { ApiError, ask, events } from "./api.js";
import { useEffect, useState } from "./html.js";

const KEPT_S = 300;
const SILENCE_MS = 7000; // the server speaks every second, and every 5 s if it has nothing to say
const RETRY_MS = [500, 1000, 2000, 4000];

class Live {
  /** The latest value; null before the first. */
  now = null;
  /** All values of the last minutes, the oldest first. */
  past = [];
  /** "waiting", "on", "lost", or "refused". */
  state = "waiting";
  error = "";
  #listeners = new Set();
  #abort = null;
  #tries = 0;

  start() {
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.state !== "on") this.restart();
    });
    this.#run();
  }

  /** Connects again at once, for instance with another key. */
  restart() {
    this.#tries = 0;
    this.#abort?.abort("restart");
  }

  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async #run() {
    for (;;) {
      this.#abort = new AbortController();
      try {
        await this.#read(this.#abort);
        this.#become("lost", "the server closed the stream");
      } catch (error) {
        const refused = error instanceof ApiError && [401, 403, 404].includes(error.status);
        this.#become(refused ? "refused" : "lost", error?.message ?? String(error));
      }
      await (this.state === "refused" ? this.#restarted() : this.#pause());
    }
  }

  async #read(abort) {
    let timer = setTimeout(() => abort.abort("silence"), SILENCE_MS);
    try {
      const response = await ask("events", { headers: { Accept: "text/event-stream" }, signal: abort.signal });
      for await (const found of events(response)) {
        clearTimeout(timer);
        timer = setTimeout(() => abort.abort("silence"), SILENCE_MS);
        if (found?.event === "live") this.#take(found.data);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  #take(value) {
    this.#tries = 0;
    this.now = value;
    this.past.push(value);
    while (this.past[0].at_s < value.at_s - KEPT_S) this.past.shift();
    this.#become("on", "");
  }

  #become(state, error) {
    this.state = state;
    this.error = error;
    for (const listener of this.#listeners) listener();
  }

  /** Waits for another key: asking again with the same one is of no use. */
  #restarted() {
    const abort = (this.#abort = new AbortController());
    return new Promise((resolve) => abort.signal.addEventListener("abort", resolve));
  }

  #pause() {
    const wait = RETRY_MS[Math.min(this.#tries++, RETRY_MS.length - 1)];
    return new Promise((resolve) => {
      const abort = (this.#abort = new AbortController());
      setTimeout(resolve, wait);
      abort.signal.addEventListener("abort", resolve);
    });
  }
}

export const live = new Live();

/** Has a component drawn again with every new value. */
export function useLive() {
  const [, redraw] = useState(0);
  useEffect(() => live.listen(() => redraw((num) => num + 1)), []);
  return live;
}
