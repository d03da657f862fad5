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
  /** share is the part of the limit that the last decision was made within. */
  get share() { return this.last?.claim || 1; }
  /** rate is in units per millisecond, of who decided last. */
  get rate() { return (this.settings.limit / this.window) * this.share; }
  /** size is what of the capacity who decided last may use: a claim is a smaller limit. */
  get size() { return this.share < 1 ? Math.max(1, Math.floor(this.capacity * this.share + 1e-9)) : this.capacity; }
  /** depth is how long that takes, in milliseconds. */
  get depth() { return this.size / this.rate; }
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
        return this.capacity - this.size + Math.min(this.size, Math.max(0, last.at + last.resetAfterMs - t) * this.rate);
    }
  }

  /** former is the count of the window before the one that t is in. */
  former(t) {
    const begin = this.start(t);
    return this.admitted(begin - this.window, begin);
  }

  remaining(t) {
    if (this.retryIn(t) > 0 && this.last.n === 1) return 0;
    return Math.max(0, Math.floor(this.capacity - this.used(t) + 1e-6));
  }

  /** retryIn is how long the last denial still holds; 0 if it does not. */
  retryIn(t) {
    const { last } = this;
    return !last || last.allowed ? 0 : Math.max(0, last.at + last.retryAfterMs - t);
  }

  /** why is what the last denial lacked, and in how long it is there. */
  why(t) {
    const { last } = this, wait = `${(Math.ceil(this.retryIn(t) / 100) / 10).toFixed(1)} s`;
    if (this.share < 1) return `its claim of ${Math.round(this.share * 100)} % is used: again in ${wait}`;
    switch (this.algorithm.slug) {
      case "fixed-window": return `this window is full: the next begins in ${wait}`;
      case "sliding-log": return last.n > 1 ? `no room for ${last.n}: enough have left in ${wait}` : `no room: the oldest leaves in ${wait}`;
      case "sliding-counter": return `no room: the former window weighs less in ${wait}`;
      case "token-bucket": return last.n > 1 ? `fewer than ${last.n} tokens: enough in ${wait}` : `no token: next in ${wait}`;
      case "leaky-policing": return `it is full: room in ${wait}`;
      case "leaky-shaping": return `the queue is full: a place in ${wait}`;
      default: return `too far ahead of the pace: again in ${wait}`;
    }
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
