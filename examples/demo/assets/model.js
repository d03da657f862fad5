// What a card's decisions say of its state at a moment: nothing here asks Redis.

/** Model is one algorithm with its settings and the decisions that the page saw. */
export class Model {
  constructor(algorithm) {
    this.algorithm = algorithm;
    this.settings = { limit: 1, seconds: 1 };
    this.decisions = [];
    this.allowed = this.denied = 0;
  }

  update(card) {
    this.settings = card.settings;
    this.allowed = card.allowed;
    this.denied = card.denied;
    this.decisions = card.fresh ? card.decisions : this.decisions.concat(card.decisions).slice(-200);
  }

  get window() { return this.settings.seconds * 1000; }
  get capacity() { return this.algorithm.window ? this.settings.limit : this.settings.burst; }
  /** rate is in units per millisecond. */
  get rate() { return this.settings.limit / this.window; }
  get last() { return this.decisions.at(-1); }

  /** admitted counts the units in [from, to). */
  admitted(from, to) {
    let n = 0;
    for (const d of this.decisions) if (d.allowed && d.at >= from && d.at < to) n += d.n;
    return n;
  }

  start(t) { return Math.floor(t / this.window) * this.window; }

  /** used is what of the capacity is taken, as a fraction of units too. */
  used(t) {
    const { last, window } = this;
    if (!last) return 0;
    switch (this.algorithm.slug) {
      case "fixed-window":
        return t >= last.at + last.resetAfterMs ? 0 : this.capacity - last.remaining;
      case "sliding-log": {
        // Those that have left the window since the limiter said what remains.
        const left = this.admitted(last.at - window, t - window);
        return Math.max(0, this.capacity - last.remaining - left);
      }
      case "sliding-counter": {
        const begin = this.start(t);
        return this.former(t) * (1 - (t - begin) / window) + this.admitted(begin, begin + window);
      }
      default: // a bucket drains until it is as if never used
        return Math.min(this.capacity, Math.max(0, last.at + last.resetAfterMs - t) * this.rate);
    }
  }

  /** former is the count of the window before the one that t is in. */
  former(t) {
    const begin = this.start(t);
    return this.admitted(begin - this.window, begin);
  }

  remaining(t) {
    return Math.max(0, Math.floor(this.capacity - this.used(t) + 1e-6));
  }

  /** retryIn is how long the last denial still holds; 0 if it does not. */
  retryIn(t) {
    const { last } = this;
    return !last || last.allowed ? 0 : Math.max(0, last.at + last.retryAfterMs - t);
  }

  /** quiet says that nothing moves any more. */
  quiet(t) {
    const { last } = this;
    return !last || t > last.at + Math.max(last.resetAfterMs, 3 * this.window, 6000);
  }

  /** words describes the state for those who don't see the drawing. */
  words(t) {
    const left = `${this.remaining(t)} of ${this.capacity} left`;
    const { last } = this;
    if (!last) return `${this.algorithm.name}: nothing asked yet, ${left}`;
    return `${this.algorithm.name}: ${this.allowed} allowed, ${this.denied} denied, ${left}`;
  }
}
