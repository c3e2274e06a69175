'use strict';

/** Calls listeners by the name of an event, in the order in which they were added. */
class Emitter {
  constructor() {
    this.listeners = {};
  }

  on(name, listener) {
    (this.listeners[name] ||= []).push(listener);
    return this;
  }

  off(name, listener) {
    const found = this.listeners[name] || [];
    const index = found.indexOf(listener);
    if (index >= 0) found.splice(index, 1);
    return this;
  }

  /** Whether anybody listened. */
  emit(name, ...values) {
    const found = this.listeners[name] || [];
    found.forEach((listener) => listener.apply(this, values));
    return found.length > 0;
  }
}

module.exports = { Emitter };
